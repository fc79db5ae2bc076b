// Packing of bf16 rows as tiles, for the attention kernels on AMX and in pairs.
//
// Of rows that lie a stride apart:
//   copy_row          a row, with zeros up to a multiple of 32: rows so padded are left tiles
//   transpose_tile    16 rows × 32 columns as a right tile whose depth runs along the columns
//   pair_rows         16 rows × 16 columns as half a right tile whose depth runs along the rows
//   transpose_pairs   32 rows × 16 columns as a left tile whose depth runs along the rows
// Of rows of whole numbers of 8 bits, which are exact in bf16:
//   pair_of_bytes     16 columns of two rows as a line of a right tile
// Threads: values.
#pragma once

#include "kernels/cpu/attention_tiles.h"

namespace jige::cpu::JIGE_ISA_NS {

// dst[0 … padded) = src[0 … count), then zeros. REQUIRES: padded is a multiple of 32.
JIGE_INLINE void copy_row(const uint16_t* src, int count, uint16_t* dst, int padded) {
  for (int c = 0; c < padded; c += 32) {
    const int left = count - c;
    const __mmask32 lanes = left >= 32 ? ~__mmask32{0} : left <= 0 ? 0 : (__mmask32{1} << left) - 1;
    _mm512_storeu_si512(dst + c, _mm512_maskz_loadu_epi16(lanes, src + c));
  }
}

JIGE_INLINE void zero_row(uint16_t* dst, int padded) {
  for (int c = 0; c < padded; c += 32) _mm512_storeu_si512(dst + c, _mm512_setzero_si512());
}

// rows[i] word j becomes rows[j] word i.
JIGE_INLINE void transpose_words(__m512i (&rows)[16]) {
  __m512i other[16];
#pragma GCC unroll 8
  for (int i = 0; i < 16; i += 2) {
    other[i] = _mm512_unpacklo_epi32(rows[i], rows[i + 1]);
    other[i + 1] = _mm512_unpackhi_epi32(rows[i], rows[i + 1]);
  }
#pragma GCC unroll 4
  for (int i = 0; i < 16; i += 4) {
    for (int j = 0; j < 2; ++j) {
      rows[i + 2 * j] = _mm512_unpacklo_epi64(other[i + j], other[i + j + 2]);
      rows[i + 2 * j + 1] = _mm512_unpackhi_epi64(other[i + j], other[i + j + 2]);
    }
  }
  // Now lane group g of rows[4 i + j] holds column 4 g + j of the rows 4 i … 4 i + 3.
#pragma GCC unroll 4
  for (int j = 0; j < 4; ++j) {
    const __m512i low_even = _mm512_shuffle_i32x4(rows[j], rows[4 + j], 0x88);
    const __m512i low_odd = _mm512_shuffle_i32x4(rows[j], rows[4 + j], 0xdd);
    const __m512i high_even = _mm512_shuffle_i32x4(rows[8 + j], rows[12 + j], 0x88);
    const __m512i high_odd = _mm512_shuffle_i32x4(rows[8 + j], rows[12 + j], 0xdd);
    other[j] = _mm512_shuffle_i32x4(low_even, high_even, 0x88);
    other[8 + j] = _mm512_shuffle_i32x4(low_even, high_even, 0xdd);
    other[4 + j] = _mm512_shuffle_i32x4(low_odd, high_odd, 0x88);
    other[12 + j] = _mm512_shuffle_i32x4(low_odd, high_odd, 0xdd);
  }
#pragma GCC unroll 16
  for (int i = 0; i < 16; ++i) rows[i] = other[i];
}

JIGE_INLINE void transpose_tile(const uint16_t* src, int64_t stride, void* dst) {
  __m512i rows[16];
#pragma GCC unroll 16
  for (int i = 0; i < 16; ++i) rows[i] = _mm512_loadu_si512(src + i * stride);
  transpose_words(rows);
#pragma GCC unroll 16
  for (int i = 0; i < 16; ++i) {
    _mm512_storeu_si512(static_cast<char*>(dst) + i * kTileRowBytes, rows[i]);
  }
}

// The halves of two vectors of 16 in turns: low[0], high[0], low[1], …
JIGE_INLINE __m512i interleave(__m512i halves) {
  alignas(64) static constexpr uint16_t kOrder[32] = {0,  16, 1,  17, 2,  18, 3,  19, 4,  20, 5,
                                                      21, 6,  22, 7,  23, 8,  24, 9,  25, 10, 26,
                                                      11, 27, 12, 28, 13, 29, 14, 30, 15, 31};
  return _mm512_permutexvar_epi16(_mm512_load_si512(kOrder), halves);
}

JIGE_INLINE __m512i pair_of_rows(const uint16_t* src, int64_t stride) {
  const __m256i first = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(src));
  const __m256i second = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(src + stride));
  return interleave(_mm512_inserti64x4(_mm512_castsi256_si512(first), second, 1));
}

// Sixteen whole numbers in f32, whose lower halves are zeros; zeros where `lanes` is not set. Reads
// all sixteen.
JIGE_INLINE __m512i widen_bytes(const int8_t* src, __mmask16 lanes = 0xffff) {
  const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(src));
  return _mm512_castps_si512(_mm512_cvtepi32_ps(_mm512_maskz_cvtepi8_epi32(lanes, bytes)));
}

// Words of a number of `first` and one of `second` each, as widen_bytes gives them.
JIGE_INLINE __m512i pair_of_widened(__m512i first, __m512i second) {
  return _mm512_or_si512(_mm512_srli_epi32(first, 16), second);
}
JIGE_INLINE __m512i pair_of_bytes(const int8_t* src, int64_t stride, __mmask16 lanes = 0xffff) {
  return pair_of_widened(widen_bytes(src, lanes), widen_bytes(src + stride, lanes));
}

JIGE_INLINE void pair_rows(const uint16_t* src, int64_t stride, void* dst) {
  for (int pair = 0; pair < 8; ++pair) {
    _mm512_storeu_si512(static_cast<char*>(dst) + pair * kTileRowBytes,
                        pair_of_rows(src + 2 * pair * stride, stride));
  }
}

JIGE_INLINE void transpose_pairs(const uint16_t* src, int64_t stride, void* dst) {
  __m512i rows[16];
#pragma GCC unroll 16
  for (int i = 0; i < 16; ++i) rows[i] = pair_of_rows(src + 2 * i * stride, stride);
  transpose_words(rows);
#pragma GCC unroll 16
  for (int i = 0; i < 16; ++i) {
    _mm512_storeu_si512(static_cast<char*>(dst) + i * kTileRowBytes, rows[i]);
  }
}

}  // namespace jige::cpu::JIGE_ISA_NS
