// The AVX-512 half of simd.h: see there. F32x16 is the native vector.
// Threads: values.
#pragma once

#include "kernels/cpu/types.h"

namespace jige::cpu::JIGE_ISA_NS {

struct F32 {
  static constexpr int kLanes = 16;
  struct Mask {
    __mmask16 bits;
  };

  __m512 v;

  static JIGE_INLINE F32 zero() { return {_mm512_setzero_ps()}; }
  static JIGE_INLINE F32 broadcast(float value) { return {_mm512_set1_ps(value)}; }
  // The lane numbers 0, 1, 2, …
  static JIGE_INLINE F32 iota() {
    return {_mm512_cvtepi32_ps(
        _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15))};
  }
  // True in the first `count` lanes. REQUIRES: 0 <= count <= kLanes.
  static JIGE_INLINE Mask first_lanes(int count) {
    return {static_cast<__mmask16>((1u << count) - 1u)};
  }

  static JIGE_INLINE F32 load(const float* src) { return {_mm512_loadu_ps(src)}; }
  static JIGE_INLINE F32 load(const Bf16* src) { return widen(load_16(src)); }
  static JIGE_INLINE F32 load(const F16* src) { return {_mm512_cvtph_ps(load_16(src))}; }
  static JIGE_INLINE F32 load(const int8_t* src) {
    return widen(_mm_loadu_si128(reinterpret_cast<const __m128i*>(src)));
  }

  // The first `count` lanes from memory, zeros in the rest; reads nothing beyond.
  static JIGE_INLINE F32 load_partial(const float* src, int count) {
    return {_mm512_maskz_loadu_ps(first_lanes(count).bits, src)};
  }
  static JIGE_INLINE F32 load_partial(const Bf16* src, int count) {
    return widen(_mm256_maskz_loadu_epi16(first_lanes(count).bits, src));
  }
  static JIGE_INLINE F32 load_partial(const F16* src, int count) {
    return {_mm512_cvtph_ps(_mm256_maskz_loadu_epi16(first_lanes(count).bits, src))};
  }
  static JIGE_INLINE F32 load_partial(const int8_t* src, int count) {
    return widen(_mm_maskz_loadu_epi8(first_lanes(count).bits, src));
  }

  JIGE_INLINE void store(float* dst) const { _mm512_storeu_ps(dst, v); }
  JIGE_INLINE void store_partial(float* dst, int count) const {
    _mm512_mask_storeu_ps(dst, first_lanes(count).bits, v);
  }
  // Rounds to nearest even; NaN stays a quiet NaN.
  JIGE_INLINE void store(Bf16* dst) const {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(dst), narrow());
  }
  JIGE_INLINE void store_partial(Bf16* dst, int count) const {
    _mm256_mask_storeu_epi16(dst, first_lanes(count).bits, narrow());
  }

  // The lanes as a bf16 vector. Adding 0x7fff, or 0x8000 where the upper half is odd, rounds that
  // half; what a NaN becomes by that is replaced by the NaN itself, made quiet.
  JIGE_INLINE __m256i narrow() const {
    alignas(64) static constexpr uint16_t kUpperHalves[32] = {1,  3,  5,  7,  9,  11, 13, 15,
                                                              17, 19, 21, 23, 25, 27, 29, 31};
    constexpr int kQuietNan = 0x22;  // in fix-up tables: both kinds of NaN become a quiet one
    const __m512i bits = _mm512_castps_si512(v);
    const __mmask16 odd = _mm512_test_epi32_mask(bits, _mm512_set1_epi32(0x10000));
    const __m512i rounded = _mm512_mask_add_epi32(_mm512_add_epi32(bits, _mm512_set1_epi32(0x7fff)),
                                                  odd, bits, _mm512_set1_epi32(0x8000));
    const __m512 fixed =
        _mm512_fixupimm_ps(_mm512_castsi512_ps(rounded), v, _mm512_set1_epi32(kQuietNan), 0);
    return _mm512_castsi512_si256(
        _mm512_permutexvar_epi16(_mm512_load_si512(kUpperHalves), _mm512_castps_si512(fixed)));
  }
  // The lanes rounded to nearest even, in 8 bits. REQUIRES: they are in -128 … 127 or NaN.
  JIGE_INLINE __m128i narrow_to_bytes() const {
    return _mm512_cvtsepi32_epi8(_mm512_cvtps_epi32(v));
  }

 private:
  template <typename Element>
  static JIGE_INLINE __m256i load_16(const Element* src) {
    return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(src));
  }
  static JIGE_INLINE F32 widen(__m256i halves) {
    return {_mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(halves), 16))};
  }
  static JIGE_INLINE F32 widen(__m128i bytes) {
    return {_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(bytes))};
  }
};
using F32x16 = F32;

JIGE_INLINE F32 operator+(F32 a, F32 b) { return {_mm512_add_ps(a.v, b.v)}; }
JIGE_INLINE F32 operator-(F32 a, F32 b) { return {_mm512_sub_ps(a.v, b.v)}; }
JIGE_INLINE F32 operator*(F32 a, F32 b) { return {_mm512_mul_ps(a.v, b.v)}; }
JIGE_INLINE F32 operator/(F32 a, F32 b) { return {_mm512_div_ps(a.v, b.v)}; }
// a·b + c with one rounding.
JIGE_INLINE F32 fma(F32 a, F32 b, F32 c) { return {_mm512_fmadd_ps(a.v, b.v, c.v)}; }
JIGE_INLINE F32 sqrt(F32 a) { return {_mm512_sqrt_ps(a.v)}; }
// max and min give `b` when either operand is NaN.
JIGE_INLINE F32 max(F32 a, F32 b) { return {_mm512_max_ps(a.v, b.v)}; }
JIGE_INLINE F32 min(F32 a, F32 b) { return {_mm512_min_ps(a.v, b.v)}; }
JIGE_INLINE F32 operator-(F32 a) { return {_mm512_xor_ps(a.v, _mm512_set1_ps(-0.0f))}; }
JIGE_INLINE F32 abs(F32 a) { return {_mm512_andnot_ps(_mm512_set1_ps(-0.0f), a.v)}; }
// The magnitude of `a` with the sign of `sign`.
JIGE_INLINE F32 copy_sign(F32 a, F32 sign) {
  const __m512 sign_bit = _mm512_set1_ps(-0.0f);
  return {_mm512_or_ps(_mm512_andnot_ps(sign_bit, a.v), _mm512_and_ps(sign_bit, sign.v))};
}

// Comparisons are false where an operand is NaN.
JIGE_INLINE F32::Mask operator<(F32 a, F32 b) { return {_mm512_cmp_ps_mask(a.v, b.v, _CMP_LT_OQ)}; }
JIGE_INLINE F32::Mask operator<=(F32 a, F32 b) {
  return {_mm512_cmp_ps_mask(a.v, b.v, _CMP_LE_OQ)};
}
JIGE_INLINE F32::Mask operator==(F32 a, F32 b) {
  return {_mm512_cmp_ps_mask(a.v, b.v, _CMP_EQ_OQ)};
}
JIGE_INLINE F32::Mask operator&(F32::Mask a, F32::Mask b) {
  return {static_cast<__mmask16>(a.bits & b.bits)};
}
// `a` where the mask is true, else `b`.
JIGE_INLINE F32 select(F32::Mask mask, F32 a, F32 b) {
  return {_mm512_mask_blend_ps(mask.bits, b.v, a.v)};
}
// Bit j is lane j.
JIGE_INLINE uint32_t mask_bits(F32::Mask mask) { return mask.bits; }

JIGE_INLINE float first_lane(F32 a) { return _mm512_cvtss_f32(a.v); }

// a · 2^n for the whole numbers n that the low bits of `shifted` hold, shifted = n + kRoundShift;
// one rounding, in the subnormal range too. REQUIRES: -252 <= n <= 254.
inline constexpr float kRoundShift = 12582912.0f;  // 1.5 · 2^23: adding it rounds to whole numbers
JIGE_INLINE F32 scale_by_power(F32 a, F32 shifted) {
  const __m512i n = _mm512_sub_epi32(_mm512_castps_si512(shifted.v), _mm512_set1_epi32(0x4b400000));
  const __m512i half = _mm512_srai_epi32(n, 1);
  const __m512i bias = _mm512_set1_epi32(127);
  const __m512i first = _mm512_slli_epi32(_mm512_add_epi32(half, bias), 23);
  const __m512i second = _mm512_slli_epi32(_mm512_add_epi32(_mm512_sub_epi32(n, half), bias), 23);
  return {
      _mm512_mul_ps(_mm512_mul_ps(a.v, _mm512_castsi512_ps(first)), _mm512_castsi512_ps(second))};
}
// 2^n for the whole numbers n with shifted = n + 127 + kRoundShift; infinity for 128.
// REQUIRES: -126 <= n <= 128.
JIGE_INLINE F32 normal_power(F32 shifted) {
  return {_mm512_castsi512_ps(_mm512_slli_epi32(_mm512_castps_si512(shifted.v), 23))};
}
// Splits a = m · 2^e with m in [sqrt(1/2), sqrt(2)). REQUIRES: a positive and normal.
JIGE_INLINE void split_exponent(F32 a, F32* mantissa, F32* exponent) {
  const __m512i offset = _mm512_set1_epi32(0x3f3504f3);  // sqrt(1/2)
  const __m512i bits = _mm512_sub_epi32(_mm512_castps_si512(a.v), offset);
  exponent->v = _mm512_cvtepi32_ps(_mm512_srai_epi32(bits, 23));
  mantissa->v = _mm512_castsi512_ps(
      _mm512_add_epi32(_mm512_and_si512(bits, _mm512_set1_epi32(0x007fffff)), offset));
}

JIGE_INLINE float horizontal_sum(F32 a) {
  const __m256 eight = _mm256_add_ps(_mm512_castps512_ps256(a.v), _mm512_extractf32x8_ps(a.v, 1));
  const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}
// Lane r is horizontal_sum(rows[r]) of sixteen vectors, bit for bit; cheaper than one at a time.
JIGE_INLINE F32 row_sums(const F32* rows) {
  const auto halves = [&](int a, int b) {  // lanes j + (j + 8), of a, then of b
    return _mm512_add_ps(_mm512_shuffle_f32x4(rows[a].v, rows[b].v, 0x44),
                         _mm512_shuffle_f32x4(rows[a].v, rows[b].v, 0xee));
  };
  __m512 fours[4];  // of rows r, r + 4, r + 8, r + 12
  for (int r = 0; r < 4; ++r) {
    const __m512 first = halves(r, r + 4);
    const __m512 second = halves(r + 8, r + 12);
    fours[r] = _mm512_add_ps(_mm512_shuffle_f32x4(first, second, 0x88),
                             _mm512_shuffle_f32x4(first, second, 0xdd));
  }
  __m512 twos[2];
  for (int r = 0; r < 2; ++r) {
    twos[r] = _mm512_add_ps(_mm512_shuffle_ps(fours[2 * r], fours[2 * r + 1], 0x44),
                            _mm512_shuffle_ps(fours[2 * r], fours[2 * r + 1], 0xee));
  }
  return {_mm512_add_ps(_mm512_shuffle_ps(twos[0], twos[1], 0x88),
                        _mm512_shuffle_ps(twos[0], twos[1], 0xdd))};
}
// The largest lane; NaN lanes may be passed over.
JIGE_INLINE float horizontal_max(F32 a) {
  const __m256 eight = _mm256_max_ps(_mm512_castps512_ps256(a.v), _mm512_extractf32x8_ps(a.v, 1));
  const __m128 four = _mm_max_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_max_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_max_ss(two, _mm_movehdup_ps(two)));
}

}  // namespace jige::cpu::JIGE_ISA_NS
