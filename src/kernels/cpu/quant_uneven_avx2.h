// Quantising to uneven levels: kUneven4 of quant_format.h.
// Included by sources compiled for one instruction set. Threads: pure functions.
#pragma once

#include <cstdint>

#include "kernels/cpu/quant_blocks_avx2.h"
#include "kernels/cpu/quant_format.h"
#include "kernels/cpu/simd.h"

namespace jige::cpu::JIGE_ISA_NS {

// Levels by sixteenths of the unsigned bytes, in each of which one bound lies at most: the first
// level, and the lower half of the byte from which on it is the next one.
struct UnevenBounds {
  uint8_t levels[16] = {};
  uint8_t halves[16] = {};

  constexpr UnevenBounds() {
    for (int i = 0; i < 16; ++i) {
      levels[i] = level_of(16 * i);
      halves[i] = 16;  // none
      for (int half = 15; half > 0 && level_of(16 * i + half) > levels[i]; --half) {
        halves[i] = static_cast<uint8_t>(half);
      }
    }
  }
  static constexpr uint8_t level_of(int byte) {
    int level = 0;
    while (level < 15 && 2 * byte >= kUnevenUnsigned[level] + kUnevenUnsigned[level + 1]) ++level;
    return static_cast<uint8_t>(level);
  }
  constexpr bool one_at_most() const {
    for (int i = 0; i < 16; ++i) {
      if (level_of(16 * i + 15) > levels[i] + 1) return false;
    }
    return true;
  }
};
inline constexpr UnevenBounds kUnevenBounds;
static_assert(kUnevenBounds.one_at_most());

JIGE_INLINE __m256i look_up(const uint8_t (&table)[16], __m256i at) {
  const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(table));
  return _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(bytes), at);
}

// The numbers of the nearest levels.
JIGE_INLINE __m256i nearest_levels(__m256i bytes) {
  const __m256i half = _mm256_set1_epi8(15);
  const __m256i moved = _mm256_xor_si256(bytes, _mm256_set1_epi8(-128));
  const __m256i upper = _mm256_and_si256(_mm256_srli_epi16(moved, 4), half);
  const __m256i below =
      _mm256_cmpgt_epi8(look_up(kUnevenBounds.halves, upper), _mm256_and_si256(moved, half));
  const __m256i next = _mm256_add_epi8(look_up(kUnevenBounds.levels, upper), _mm256_set1_epi8(1));
  return _mm256_add_epi8(next, below);
}

// Vector i of what packing has left in its order.
template <int i>
JIGE_INLINE F32 packed_floats(__m256i bytes) {
  constexpr int kNone = -128;
  const __m128i places =
      _mm_setr_epi8(kNone, kNone, kNone, 4 * i, kNone, kNone, kNone, 4 * i + 1, kNone, kNone, kNone,
                    4 * i + 2, kNone, kNone, kNone, 4 * i + 3);
  const __m256i words = _mm256_shuffle_epi8(bytes, _mm256_broadcastsi128_si256(places));
  return {_mm256_cvtepi32_ps(_mm256_srai_epi32(words, 24))};
}

// Lane i: the sum of the lanes of vector i, those 4, 2 and 1 apart added in turn.
JIGE_INLINE F32 sums_of_lanes(const F32 (&x)[F32::kLanes]) {
  __m256 four[4];
  for (int i = 0; i < 4; ++i) {
    four[i] = _mm256_add_ps(_mm256_permute2f128_ps(x[i].v, x[i + 4].v, 0x20),
                            _mm256_permute2f128_ps(x[i].v, x[i + 4].v, 0x31));
  }
  __m256 two[2];
  for (int i = 0; i < 2; ++i) {
    two[i] = _mm256_add_ps(_mm256_shuffle_ps(four[2 * i], four[2 * i + 1], 0x44),
                           _mm256_shuffle_ps(four[2 * i], four[2 * i + 1], 0xee));
  }
  return {_mm256_add_ps(_mm256_shuffle_ps(two[0], two[1], 0x88),
                        _mm256_shuffle_ps(two[0], two[1], 0xdd))};
}

// The first lane of the largest.
JIGE_INLINE int first_largest(F32 x) {
  __m256 most = _mm256_max_ps(x.v, _mm256_permute2f128_ps(x.v, x.v, 1));
  most = _mm256_max_ps(most, _mm256_permute_ps(most, 0x4e));
  most = _mm256_max_ps(most, _mm256_permute_ps(most, 0xb1));
  return __builtin_ctz(mask_bits(x == F32{most}));
}

// For each place of the extreme number S and Q, a lane each, of numbers divided by that one.
JIGE_INLINE void sums_of_places(const Numbers& r, F32* sum, F32* square) {
  static_assert(sizeof kUnevenPlaces == F32::kLanes * sizeof(float));
  F32 sums[F32::kLanes], squares[F32::kLanes];
#pragma GCC unroll 8
  for (int i = 0; i < F32::kLanes; ++i) {
    const F32 place = F32::broadcast(kUnevenPlaces[i]);
    Numbers placed;
    for (int j = 0; j < kBlockVectors; ++j) placed.v[j] = r.v[j] * place;
    const __m256i levels = look_up(kUnevenUnsigned, nearest_levels(to_packed_bytes(placed)));
    const __m256i bytes = _mm256_xor_si256(levels, _mm256_set1_epi8(-128));
    const F32 u[kBlockVectors] = {packed_floats<0>(bytes), packed_floats<1>(bytes),
                                  packed_floats<2>(bytes), packed_floats<3>(bytes)};
    sums[i] = squares[i] = F32::zero();
    for (int j = 0; j < kBlockVectors; ++j) {
      sums[i] = fma(r.v[j], u[j], sums[i]);
      squares[i] = fma(u[j], u[j], squares[i]);  // whole numbers, exact
    }
  }
  *sum = sums_of_lanes(sums);
  *square = sums_of_lanes(squares);
}

// Without a branch on which place is better, as for kQ4.
JIGE_INLINE WeightBlock quantise_uneven(const Numbers& x, uint32_t bits) {
  if (bits < kQuantLeast) return zeros_of<QuantFormat::kUneven4>(0);
  const float extreme = extreme_of(x, bits);
  const F32 inverse = F32::broadcast(1.0f / extreme);
  Numbers r;
  for (int i = 0; i < kBlockVectors; ++i) r.v[i] = x.v[i] * inverse;
  F32 sum, square;
  sums_of_places(r, &sum, &square);
  float scales[F32::kLanes];
  (F32::broadcast(extreme) * (sum / square)).store(scales);
  const Scale scale = scale_of(scales[first_largest(sum * sum / square)]);
  return {nearest_levels(to_bytes(scaled_numbers(x, scale, -128, 127))), scale.bits};
}

}  // namespace jige::cpu::JIGE_ISA_NS
