// The AVX2 half of simd.h: see there. F32x16 is a pair of native vectors.
// Threads: values.
#pragma once

#include "kernels/cpu/types.h"

namespace jige::cpu::JIGE_ISA_NS {

struct F32 {
  static constexpr int kLanes = 8;
  struct Mask {
    __m256 v;
  };

  __m256 v;

  static JIGE_INLINE F32 zero() { return {_mm256_setzero_ps()}; }
  static JIGE_INLINE F32 broadcast(float value) { return {_mm256_set1_ps(value)}; }
  // The lane numbers 0, 1, 2, …
  static JIGE_INLINE F32 iota() { return {_mm256_setr_ps(0, 1, 2, 3, 4, 5, 6, 7)}; }
  // True in the first `count` lanes; in all when count is larger, in none when it is negative.
  static JIGE_INLINE Mask first_lanes(int count) {
    const __m256i lanes = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    return {_mm256_castsi256_ps(_mm256_cmpgt_epi32(_mm256_set1_epi32(count), lanes))};
  }

  static JIGE_INLINE F32 load(const float* src) { return {_mm256_loadu_ps(src)}; }
  static JIGE_INLINE F32 load(const Bf16* src) { return widen(load_8(src)); }
  static JIGE_INLINE F32 load(const F16* src) { return {_mm256_cvtph_ps(load_8(src))}; }
  static JIGE_INLINE F32 load(const int8_t* src) {
    const __m128i bytes = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(src));
    return {_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(bytes))};
  }

  // The first `count` lanes from memory, zeros in the rest; reads nothing beyond.
  static JIGE_INLINE F32 load_partial(const float* src, int count) {
    return {_mm256_maskload_ps(src, _mm256_castps_si256(first_lanes(count).v))};
  }
  static JIGE_INLINE F32 load_partial(const Bf16* src, int count) {
    return widen(load_8_partial(src, count));
  }
  static JIGE_INLINE F32 load_partial(const F16* src, int count) {
    return {_mm256_cvtph_ps(load_8_partial(src, count))};
  }
  static JIGE_INLINE F32 load_partial(const int8_t* src, int count) {
    int8_t lanes[kLanes] = {};
    for (int lane = 0; lane < count; ++lane) lanes[lane] = src[lane];
    return load(lanes);
  }

  JIGE_INLINE void store(float* dst) const { _mm256_storeu_ps(dst, v); }
  JIGE_INLINE void store_partial(float* dst, int count) const {
    _mm256_maskstore_ps(dst, _mm256_castps_si256(first_lanes(count).v), v);
  }
  // Rounds to nearest even; NaN stays a quiet NaN.
  JIGE_INLINE void store(Bf16* dst) const {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(dst), narrow());
  }
  JIGE_INLINE void store_partial(Bf16* dst, int count) const {
    Bf16 lanes[kLanes];
    store(lanes);
    for (int lane = 0; lane < count; ++lane) dst[lane] = lanes[lane];
  }

  // The lanes as a bf16 vector.
  JIGE_INLINE __m128i narrow() const {
    const __m256i words = narrow_words();
    return _mm_packus_epi32(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1));
  }
  // The lanes as bf16 in the low half of each 32-bit lane.
  JIGE_INLINE __m256i narrow_words() const {
    const __m256i bits = _mm256_castps_si256(v);
    const __m256i upper = _mm256_srli_epi32(bits, 16);
    const __m256i odd = _mm256_and_si256(upper, _mm256_set1_epi32(1));
    const __m256i rounded = _mm256_srli_epi32(
        _mm256_add_epi32(_mm256_add_epi32(bits, _mm256_set1_epi32(0x7fff)), odd), 16);
    const __m256i quiet = _mm256_or_si256(upper, _mm256_set1_epi32(0x40));
    const __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(v, v, _CMP_UNORD_Q));
    return _mm256_blendv_epi8(rounded, quiet, nan);
  }

 private:
  template <typename Element>
  static JIGE_INLINE __m128i load_8(const Element* src) {
    return _mm_loadu_si128(reinterpret_cast<const __m128i*>(src));
  }
  template <typename Element>
  static JIGE_INLINE __m128i load_8_partial(const Element* src, int count) {
    Element lanes[kLanes] = {};
    for (int lane = 0; lane < count; ++lane) lanes[lane] = src[lane];
    return load_8(lanes);
  }
  static JIGE_INLINE F32 widen(__m128i halves) {
    return {_mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(halves), 16))};
  }
};

JIGE_INLINE F32 operator+(F32 a, F32 b) { return {_mm256_add_ps(a.v, b.v)}; }
JIGE_INLINE F32 operator-(F32 a, F32 b) { return {_mm256_sub_ps(a.v, b.v)}; }
JIGE_INLINE F32 operator*(F32 a, F32 b) { return {_mm256_mul_ps(a.v, b.v)}; }
JIGE_INLINE F32 operator/(F32 a, F32 b) { return {_mm256_div_ps(a.v, b.v)}; }
// a·b + c with one rounding.
JIGE_INLINE F32 fma(F32 a, F32 b, F32 c) { return {_mm256_fmadd_ps(a.v, b.v, c.v)}; }
JIGE_INLINE F32 sqrt(F32 a) { return {_mm256_sqrt_ps(a.v)}; }
// max and min give `b` when either operand is NaN.
JIGE_INLINE F32 max(F32 a, F32 b) { return {_mm256_max_ps(a.v, b.v)}; }
JIGE_INLINE F32 min(F32 a, F32 b) { return {_mm256_min_ps(a.v, b.v)}; }
JIGE_INLINE F32 operator-(F32 a) { return {_mm256_xor_ps(a.v, _mm256_set1_ps(-0.0f))}; }
JIGE_INLINE F32 abs(F32 a) { return {_mm256_andnot_ps(_mm256_set1_ps(-0.0f), a.v)}; }
// The magnitude of `a` with the sign of `sign`.
JIGE_INLINE F32 copy_sign(F32 a, F32 sign) {
  const __m256 sign_bit = _mm256_set1_ps(-0.0f);
  return {_mm256_or_ps(_mm256_andnot_ps(sign_bit, a.v), _mm256_and_ps(sign_bit, sign.v))};
}

// Comparisons are false where an operand is NaN.
JIGE_INLINE F32::Mask operator<(F32 a, F32 b) { return {_mm256_cmp_ps(a.v, b.v, _CMP_LT_OQ)}; }
JIGE_INLINE F32::Mask operator<=(F32 a, F32 b) { return {_mm256_cmp_ps(a.v, b.v, _CMP_LE_OQ)}; }
JIGE_INLINE F32::Mask operator==(F32 a, F32 b) { return {_mm256_cmp_ps(a.v, b.v, _CMP_EQ_OQ)}; }
JIGE_INLINE F32::Mask operator&(F32::Mask a, F32::Mask b) { return {_mm256_and_ps(a.v, b.v)}; }
// `a` where the mask is true, else `b`.
JIGE_INLINE F32 select(F32::Mask mask, F32 a, F32 b) {
  return {_mm256_blendv_ps(b.v, a.v, mask.v)};
}
// Bit j is lane j.
JIGE_INLINE uint32_t mask_bits(F32::Mask mask) {
  return static_cast<uint32_t>(_mm256_movemask_ps(mask.v));
}

JIGE_INLINE float first_lane(F32 a) { return _mm256_cvtss_f32(a.v); }

// a · 2^n for the whole numbers n that the low bits of `shifted` hold, shifted = n + kRoundShift;
// one rounding, in the subnormal range too. REQUIRES: -252 <= n <= 254.
inline constexpr float kRoundShift = 12582912.0f;  // 1.5 · 2^23: adding it rounds to whole numbers
JIGE_INLINE F32 scale_by_power(F32 a, F32 shifted) {
  const __m256i n = _mm256_sub_epi32(_mm256_castps_si256(shifted.v), _mm256_set1_epi32(0x4b400000));
  const __m256i half = _mm256_srai_epi32(n, 1);
  const __m256i bias = _mm256_set1_epi32(127);
  const __m256i first = _mm256_slli_epi32(_mm256_add_epi32(half, bias), 23);
  const __m256i second = _mm256_slli_epi32(_mm256_add_epi32(_mm256_sub_epi32(n, half), bias), 23);
  return {
      _mm256_mul_ps(_mm256_mul_ps(a.v, _mm256_castsi256_ps(first)), _mm256_castsi256_ps(second))};
}
// 2^n for the whole numbers n with shifted = n + 127 + kRoundShift; infinity for 128.
// REQUIRES: -126 <= n <= 128.
JIGE_INLINE F32 normal_power(F32 shifted) {
  return {_mm256_castsi256_ps(_mm256_slli_epi32(_mm256_castps_si256(shifted.v), 23))};
}
// Splits a = m · 2^e with m in [sqrt(1/2), sqrt(2)). REQUIRES: a positive and normal.
JIGE_INLINE void split_exponent(F32 a, F32* mantissa, F32* exponent) {
  const __m256i offset = _mm256_set1_epi32(0x3f3504f3);  // sqrt(1/2)
  const __m256i bits = _mm256_sub_epi32(_mm256_castps_si256(a.v), offset);
  exponent->v = _mm256_cvtepi32_ps(_mm256_srai_epi32(bits, 23));
  mantissa->v = _mm256_castsi256_ps(
      _mm256_add_epi32(_mm256_and_si256(bits, _mm256_set1_epi32(0x007fffff)), offset));
}

// Sixteen lanes in two registers: lanes 0 … 7 are `low`, lanes 8 … 15 are `high`.
struct F32x16 {
  static constexpr int kLanes = 16;
  struct Mask {
    F32::Mask low, high;
  };

  F32 low, high;

  static JIGE_INLINE F32x16 zero() { return {F32::zero(), F32::zero()}; }
  static JIGE_INLINE F32x16 broadcast(float value) {
    return {F32::broadcast(value), F32::broadcast(value)};
  }
  static JIGE_INLINE F32x16 iota() { return {F32::iota(), F32::iota() + F32::broadcast(8)}; }
  static JIGE_INLINE Mask first_lanes(int count) {
    return {F32::first_lanes(count), F32::first_lanes(count - 8)};
  }
  template <typename Element>
  static JIGE_INLINE F32x16 load(const Element* src) {
    return {F32::load(src), F32::load(src + 8)};
  }
  template <typename Element>
  static JIGE_INLINE F32x16 load_partial(const Element* src, int count) {
    if (count >= 8) return {F32::load(src), F32::load_partial(src + 8, count - 8)};
    return {F32::load_partial(src, count), F32::zero()};
  }
  JIGE_INLINE void store(float* dst) const {
    low.store(dst);
    high.store(dst + 8);
  }
  JIGE_INLINE void store(Bf16* dst) const {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(dst), narrow());
  }
  template <typename Element>
  JIGE_INLINE void store_partial(Element* dst, int count) const {
    if (count >= 8) {
      low.store(dst);
      high.store_partial(dst + 8, count - 8);
    } else {
      low.store_partial(dst, count);
    }
  }
  // The lanes as a bf16 vector.
  JIGE_INLINE __m256i narrow() const {
    const __m256i packed = _mm256_packus_epi32(low.narrow_words(), high.narrow_words());
    return _mm256_permute4x64_epi64(packed, 0xd8);  // packus works within 128 bits
  }
  // The lanes rounded to nearest even, in 8 bits. REQUIRES: they are in -128 … 127 or NaN.
  JIGE_INLINE __m128i narrow_to_bytes() const {
    const __m256i words = _mm256_permute4x64_epi64(
        _mm256_packs_epi32(_mm256_cvtps_epi32(low.v), _mm256_cvtps_epi32(high.v)), 0xd8);
    return _mm_packs_epi16(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1));
  }
};

JIGE_INLINE F32x16 operator+(F32x16 a, F32x16 b) { return {a.low + b.low, a.high + b.high}; }
JIGE_INLINE F32x16 operator-(F32x16 a, F32x16 b) { return {a.low - b.low, a.high - b.high}; }
JIGE_INLINE F32x16 operator*(F32x16 a, F32x16 b) { return {a.low * b.low, a.high * b.high}; }
JIGE_INLINE F32x16 operator/(F32x16 a, F32x16 b) { return {a.low / b.low, a.high / b.high}; }
JIGE_INLINE F32x16 fma(F32x16 a, F32x16 b, F32x16 c) {
  return {fma(a.low, b.low, c.low), fma(a.high, b.high, c.high)};
}
JIGE_INLINE F32x16 sqrt(F32x16 a) { return {sqrt(a.low), sqrt(a.high)}; }
JIGE_INLINE F32x16 max(F32x16 a, F32x16 b) { return {max(a.low, b.low), max(a.high, b.high)}; }
JIGE_INLINE F32x16 min(F32x16 a, F32x16 b) { return {min(a.low, b.low), min(a.high, b.high)}; }
JIGE_INLINE F32x16 operator-(F32x16 a) { return {-a.low, -a.high}; }
JIGE_INLINE F32x16 abs(F32x16 a) { return {abs(a.low), abs(a.high)}; }
JIGE_INLINE F32x16 copy_sign(F32x16 a, F32x16 sign) {
  return {copy_sign(a.low, sign.low), copy_sign(a.high, sign.high)};
}
JIGE_INLINE F32x16::Mask operator<(F32x16 a, F32x16 b) { return {a.low < b.low, a.high < b.high}; }
JIGE_INLINE F32x16::Mask operator<=(F32x16 a, F32x16 b) {
  return {a.low <= b.low, a.high <= b.high};
}
JIGE_INLINE F32x16::Mask operator==(F32x16 a, F32x16 b) {
  return {a.low == b.low, a.high == b.high};
}
JIGE_INLINE F32x16::Mask operator&(F32x16::Mask a, F32x16::Mask b) {
  return {a.low & b.low, a.high & b.high};
}
JIGE_INLINE F32x16 select(F32x16::Mask mask, F32x16 a, F32x16 b) {
  return {select(mask.low, a.low, b.low), select(mask.high, a.high, b.high)};
}
JIGE_INLINE uint32_t mask_bits(F32x16::Mask mask) {
  return mask_bits(mask.low) | (mask_bits(mask.high) << 8);
}
JIGE_INLINE F32x16 scale_by_power(F32x16 a, F32x16 shifted) {
  return {scale_by_power(a.low, shifted.low), scale_by_power(a.high, shifted.high)};
}
JIGE_INLINE F32x16 normal_power(F32x16 shifted) {
  return {normal_power(shifted.low), normal_power(shifted.high)};
}
JIGE_INLINE void split_exponent(F32x16 a, F32x16* mantissa, F32x16* exponent) {
  split_exponent(a.low, &mantissa->low, &exponent->low);
  split_exponent(a.high, &mantissa->high, &exponent->high);
}

JIGE_INLINE float horizontal_sum(F32x16 a) {
  const __m256 eight = (a.low + a.high).v;
  const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}
// Lane r is horizontal_sum(rows[r]) of sixteen vectors, bit for bit; cheaper than one at a time.
JIGE_INLINE __m256 add_quarters(__m256 a, __m256 b) {  // lanes j + (j + 4), of a, then of b
  return _mm256_add_ps(_mm256_permute2f128_ps(a, b, 0x20), _mm256_permute2f128_ps(a, b, 0x31));
}
JIGE_INLINE __m256 eight_row_sums(const F32x16* rows) {
  const auto halves = [&](int r) { return (rows[r].low + rows[r].high).v; };
  __m256 pairs[4];
  for (int r = 0; r < 4; ++r) pairs[r] = add_quarters(halves(r), halves(r + 4));
  __m256 twos[2];
  for (int r = 0; r < 2; ++r) {
    twos[r] = _mm256_add_ps(_mm256_shuffle_ps(pairs[2 * r], pairs[2 * r + 1], 0x44),
                            _mm256_shuffle_ps(pairs[2 * r], pairs[2 * r + 1], 0xee));
  }
  return _mm256_add_ps(_mm256_shuffle_ps(twos[0], twos[1], 0x88),
                       _mm256_shuffle_ps(twos[0], twos[1], 0xdd));
}
JIGE_INLINE F32x16 row_sums(const F32x16* rows) {
  return {{eight_row_sums(rows)}, {eight_row_sums(rows + 8)}};
}
// The largest lane; NaN lanes may be passed over.
JIGE_INLINE float horizontal_max(F32x16 a) {
  const __m256 eight = max(a.low, a.high).v;
  const __m128 four = _mm_max_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_max_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_max_ss(two, _mm_movehdup_ps(two)));
}

}  // namespace jige::cpu::JIGE_ISA_NS
