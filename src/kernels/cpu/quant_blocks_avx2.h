// The blocks of 32 numbers that are quantised, in vectors of AVX2: their extreme numbers, scales
// and bytes. Included by sources compiled for one instruction set. Threads: pure functions.
#pragma once

#include <cstdint>
#include <cstring>

#include "kernels/cpu/quant_format.h"
#include "kernels/cpu/simd.h"

namespace jige::cpu::JIGE_ISA_NS {

inline constexpr int kBlockVectors = kQuantBlock / F32::kLanes;

// The numbers of a block, element 8 v + j in lane j of vector v.
struct Numbers {
  F32 v[kBlockVectors];
};

template <typename Element>
JIGE_INLINE Numbers load_numbers(const Element* src, int64_t count) {
  Numbers numbers;
  if (count >= kQuantBlock) {
    for (int i = 0; i < kBlockVectors; ++i) numbers.v[i] = F32::load(src + F32::kLanes * i);
    return numbers;
  }
  float some[kQuantBlock] = {};
  for (int64_t i = 0; i < count; ++i) some[i] = to_f32(src[i]);
  for (int i = 0; i < kBlockVectors; ++i) numbers.v[i] = F32::load(some + F32::kLanes * i);
  return numbers;
}

JIGE_INLINE float as_float(uint32_t bits) {
  float value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

// The bits of the largest magnitude; infinities and NaNs are larger than numbers.
JIGE_INLINE uint32_t largest_bits(const Numbers& x) {
  const __m256i magnitude = _mm256_set1_epi32(0x7fffffff);
  __m256i most = _mm256_setzero_si256();
  for (const F32& v : x.v) {
    most = _mm256_max_epu32(most, _mm256_and_si256(_mm256_castps_si256(v.v), magnitude));
  }
  __m128i four = _mm_max_epu32(_mm256_castsi256_si128(most), _mm256_extracti128_si256(most, 1));
  four = _mm_max_epu32(four, _mm_shuffle_epi32(four, 0x4e));
  four = _mm_max_epu32(four, _mm_shuffle_epi32(four, 0xb1));
  return static_cast<uint32_t>(_mm_cvtsi128_si32(four));
}

// Bytes that packing has left in its order, in order.
JIGE_INLINE __m256i in_order(__m256i packed) {
  return _mm256_permutevar8x32_epi32(packed, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
}

// Numbers rounded to nearest even as bytes, clamped to these: in each half four of every vector.
// REQUIRES: 32-bit integers hold them.
JIGE_INLINE __m256i to_packed_bytes(const Numbers& x) {
  const __m256i low =
      _mm256_packs_epi32(_mm256_cvtps_epi32(x.v[0].v), _mm256_cvtps_epi32(x.v[1].v));
  const __m256i high =
      _mm256_packs_epi32(_mm256_cvtps_epi32(x.v[2].v), _mm256_cvtps_epi32(x.v[3].v));
  return _mm256_packs_epi16(low, high);
}

JIGE_INLINE __m256i to_bytes(const Numbers& x) { return in_order(to_packed_bytes(x)); }

// The number of the largest magnitude; the negative one of two.
JIGE_INLINE float extreme_of(const Numbers& x, uint32_t bits) {
  const F32 negative = F32::broadcast(-as_float(bits));
  uint32_t found = 0;
  for (const F32& v : x.v) found |= mask_bits(v == negative);
  return found ? -as_float(bits) : as_float(bits);
}

// A scale of weights: its bits, and 1 / d, or zero where d is.
struct Scale {
  uint16_t bits;
  float value;
  float inverse;
};

JIGE_INLINE Scale scale_of(float wanted) {
  Scale scale;
  const float most = wanted > kQuantScaleMax ? kQuantScaleMax : wanted;
  const float clamped = most < -kQuantScaleMax ? -kQuantScaleMax : most;
  scale.bits = static_cast<uint16_t>(_cvtss_sh(clamped, _MM_FROUND_TO_NEAREST_INT));
  scale.value = _cvtsh_ss(scale.bits);
  if (scale.value == 0) return {0, 0, 0};
  scale.inverse = 1.0f / scale.value;
  return scale;
}

JIGE_INLINE Numbers scaled_numbers(const Numbers& x, const Scale& scale, float least, float most) {
  Numbers scaled;
  for (int i = 0; i < kBlockVectors; ++i) {
    const F32 value = x.v[i] * F32::broadcast(scale.inverse);
    scaled.v[i] = max(min(value, F32::broadcast(most)), F32::broadcast(least));
  }
  return scaled;
}

// The weights of a block as signed bytes, of uneven ones the numbers of their levels, and the
// scale.
struct WeightBlock {
  __m256i bytes;
  uint16_t scale;
};

template <QuantFormat kFormat>
JIGE_INLINE WeightBlock zeros_of(uint16_t scale) {
  return {_mm256_set1_epi8(kFormat == QuantFormat::kUneven4 ? kUnevenOne : 0), scale};
}

}  // namespace jige::cpu::JIGE_ISA_NS
