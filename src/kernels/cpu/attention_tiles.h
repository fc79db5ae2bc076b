// What the attention kernels in bf16 do to scores beside their products, sixteen lanes at a time.
// For sources named *_tiles.cc. Threads: values, but for a mode of the thread.
#pragma once

#include "kernels/cpu/attention_layout.h"
#include "kernels/cpu/attention_products.h"

namespace jige::cpu::JIGE_ISA_NS {

// Makes vector arithmetic of this thread treat numbers below the normal range as tiles do: as
// zeros, as operands and as results. REQUIRES: the arithmetic in its scope is in functions that are
// not inlined; the compiler moves arithmetic across a change of mode.
class ZeroDenormals {
 public:
  ZeroDenormals() : before_(_mm_getcsr()) {
    _mm_setcsr(before_ | 0x8040);  // flush to zero, denormals are zeros
  }
  ~ZeroDenormals() { _mm_setcsr(before_); }
  ZeroDenormals(const ZeroDenormals&) = delete;
  ZeroDenormals& operator=(const ZeroDenormals&) = delete;

 private:
  unsigned before_;
};

// The lanes of block 16·i … 16·i + 15 that are in a range.
JIGE_INLINE __mmask16 lanes_of(AttentionRange range, int block) {
  const auto below = [](int count) {
    return (1u << (count < 0 ? 0 : count > 16 ? 16 : count)) - 1;
  };
  return static_cast<__mmask16>(below(range.end - block * 16) & ~below(range.begin - block * 16));
}

inline constexpr float kLog2E = 1.44269504088896f;
inline constexpr float kLn2 = 0.693147180559945f;

// 2^x where x >= -125, else zero; NaN stays one. With n = round(x) and r = x − n: the chain of
// c[4] r + c[3] … + 1, its exponent raised by n. Exact for whole x; else within 3e-6 of the value.
// REQUIRES: x < 127.
JIGE_INLINE __m512 power_of_two(__m512 x, __mmask16 normal) {
  const __m512 shift = _mm512_set1_ps(kRoundShift);
  const __m512 shifted = _mm512_add_ps(x, shift);
  const __m512 r = _mm512_sub_ps(x, _mm512_sub_ps(shifted, shift));
  __m512 sum = _mm512_set1_ps(0.009582852944731712f);
  sum = _mm512_fmadd_ps(sum, r, _mm512_set1_ps(0.055906426161527634f));
  sum = _mm512_fmadd_ps(sum, r, _mm512_set1_ps(0.24024099111557007f));
  sum = _mm512_fmadd_ps(sum, r, _mm512_set1_ps(0.6931241750717163f));
  sum = _mm512_fmadd_ps(sum, r, _mm512_set1_ps(1.0f));
  const __m512i exponent = _mm512_slli_epi32(_mm512_castps_si512(shifted), 23);
  return _mm512_castsi512_ps(_mm512_maskz_add_epi32(normal, _mm512_castps_si512(sum), exponent));
}
JIGE_INLINE __m512 power_of_two(__m512 x) {
  return power_of_two(x, _mm512_cmp_ps_mask(x, _mm512_set1_ps(-125.0f), _CMP_NLT_UQ));
}
// The same in some lanes, zero in the others.
JIGE_INLINE __m512 power_of_two_in(__mmask16 lanes, __m512 x) {
  return power_of_two(x, _mm512_mask_cmp_ps_mask(lanes, x, _mm512_set1_ps(-125.0f), _CMP_NLT_UQ));
}

// Whether a range covers a block of `size` lanes.
JIGE_INLINE bool covers(AttentionRange range, int block, int size) {
  return range.begin <= block * size && range.end >= (block + 1) * size;
}

// Thirty-two bf16, `low` first.
JIGE_INLINE __m512i narrow_two(__m512 low, __m512 high) {
  return (__m512i)_mm512_cvtne2ps_pbh(high, low);
}

}  // namespace jige::cpu::JIGE_ISA_NS
