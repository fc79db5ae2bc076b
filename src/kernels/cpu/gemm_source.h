// Reading eight elements of any type as f32, or as bf16 in the upper halves of 32-bit words; and
// the 8 x 8 transposition that packing is made of. For the packing sources only. Threads: no state.
#pragma once

#include <immintrin.h>

#include <cstdint>
#include <cstring>

#include "tensor/dtype.h"

namespace jige::cpu {

// Rounds lanes to bf16 (nearest, ties to even; NaN stays quiet) and back.
inline __m256 round_lanes_to_bf16(__m256 value) {
  const __m256i bits = _mm256_castps_si256(value);
  const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
  const __m256i rounded = _mm256_add_epi32(_mm256_add_epi32(bits, _mm256_set1_epi32(0x7fff)), odd);
  const __m256i quiet = _mm256_or_si256(bits, _mm256_set1_epi32(0x400000));
  const __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(value, value, _CMP_UNORD_Q));
  const __m256i upper = _mm256_set1_epi32(-0x10000);
  return _mm256_castsi256_ps(_mm256_and_si256(_mm256_blendv_epi8(rounded, quiet, nan), upper));
}

struct SourceF32 {
  using Element = float;
  static __m256 load(const Element* src) { return _mm256_loadu_ps(src); }
};

struct SourceBF16 {
  using Element = BFloat16;
  static __m256 load(const Element* src) {
    const __m128i halves = _mm_loadu_si128(reinterpret_cast<const __m128i*>(src));
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(halves), 16));
  }
};

struct SourceF16 {
  using Element = Float16;
  static __m256 load(const Element* src) {
    return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(src)));
  }
};

template <typename Source>
struct Rounded {
  using Element = typename Source::Element;
  static __m256 load(const Element* src) { return round_lanes_to_bf16(Source::load(src)); }
};

// f32 numbers below the normal range as zeros of the same sign.
template <typename Source>
struct Flushed {
  using Element = typename Source::Element;
  static __m256 load(const Element* src) {
    const __m256i bits = _mm256_castps_si256(Source::load(src));
    const __m256i exponent = _mm256_and_si256(bits, _mm256_set1_epi32(0x7f800000));
    const __m256i zero = _mm256_cmpeq_epi32(exponent, _mm256_setzero_si256());
    const __m256i sign = _mm256_and_si256(bits, _mm256_set1_epi32(INT32_MIN));
    return _mm256_castsi256_ps(_mm256_blendv_epi8(bits, sign, zero));
  }
};

// The first `count` < 8 elements, zeros behind; reads nothing beyond.
template <typename Source>
__m256 load_some(const typename Source::Element* src, int64_t count) {
  typename Source::Element lanes[8] = {};
  std::memcpy(lanes, src, static_cast<size_t>(count) * sizeof lanes[0]);
  return Source::load(lanes);
}

// `count` elements as f32.
template <typename Source>
void read_row(const typename Source::Element* src, int64_t count, float* dst) {
  int64_t i = 0;
  for (; i + 8 <= count; i += 8) _mm256_storeu_ps(dst + i, Source::load(src + i));
  if (i < count) {
    float lanes[8];
    _mm256_storeu_ps(lanes, load_some<Source>(src + i, count - i));
    std::memcpy(dst + i, lanes, static_cast<size_t>(count - i) * sizeof(float));
  }
}

// Calls body(Source()) with the source type of an element type as pairs and tiles take it.
template <typename Body>
void with_flushed_source(DType dtype, Body&& body) {
  if (dtype == DType::kBF16) {
    body(SourceBF16());
  } else if (dtype == DType::kF16) {
    body(Rounded<SourceF16>());
  } else {
    body(Rounded<Flushed<SourceF32>>());
  }
}

// Calls body(Source()) with the source type of an element type.
template <typename Body>
void with_source(DType dtype, bool round_to_bf16, Body&& body) {
  if (dtype == DType::kBF16) {
    body(SourceBF16());
  } else if (dtype == DType::kF16) {
    round_to_bf16 ? body(Rounded<SourceF16>()) : body(SourceF16());
  } else {
    round_to_bf16 ? body(Rounded<SourceF32>()) : body(SourceF32());
  }
}

// rows[i] lane j becomes rows[j] lane i.
inline void transpose_8x8(__m256 (&rows)[8]) {
  __m256 pairs[8];
#pragma GCC unroll 8
  for (int i = 0; i < 8; i += 2) {
    pairs[i] = _mm256_unpacklo_ps(rows[i], rows[i + 1]);
    pairs[i + 1] = _mm256_unpackhi_ps(rows[i], rows[i + 1]);
  }
  __m256 quads[8];
#pragma GCC unroll 8
  for (int i = 0; i < 8; i += 4) {
    quads[i] = _mm256_shuffle_ps(pairs[i], pairs[i + 2], 0x44);
    quads[i + 1] = _mm256_shuffle_ps(pairs[i], pairs[i + 2], 0xee);
    quads[i + 2] = _mm256_shuffle_ps(pairs[i + 1], pairs[i + 3], 0x44);
    quads[i + 3] = _mm256_shuffle_ps(pairs[i + 1], pairs[i + 3], 0xee);
  }
#pragma GCC unroll 8
  for (int i = 0; i < 4; ++i) {
    rows[i] = _mm256_permute2f128_ps(quads[i], quads[i + 4], 0x20);
    rows[i + 4] = _mm256_permute2f128_ps(quads[i], quads[i + 4], 0x31);
  }
}

}  // namespace jige::cpu
