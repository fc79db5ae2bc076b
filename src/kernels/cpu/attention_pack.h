// Packing of rows for attention, for the sources compiled once per instruction set: sixteen rows
// turned into columns ([d][16]), and rows widened to f32.
// Threads: values.
#pragma once

#include "kernels/cpu/simd.h"

namespace jige::cpu::JIGE_ISA_NS {

// Eight floats, on every instruction set: what an 8×8 transposition works on.
JIGE_INLINE __m256 load_8(const float* src) { return _mm256_loadu_ps(src); }
JIGE_INLINE __m256 load_8(const Bf16* src) {
  const __m128i halves = _mm_loadu_si128(reinterpret_cast<const __m128i*>(src));
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(halves), 16));
}
template <typename Element>
JIGE_INLINE __m256 load_8_partial(const Element* src, int count) {
  float lanes[8] = {};
  for (int lane = 0; lane < count; ++lane) lanes[lane] = to_f32(src[lane]);
  return _mm256_loadu_ps(lanes);
}

JIGE_INLINE F32x16 join(__m256 low, __m256 high) {
#if defined(JIGE_ISA_avx512)
  return {_mm512_insertf32x8(_mm512_castps256_ps512(low), high, 1)};
#else
  return {{low}, {high}};
#endif
}

// rows[i] lane j becomes rows[j] lane i.
JIGE_INLINE void transpose_8(__m256* rows) {
  __m256 pairs[8];
  for (int i = 0; i < 8; i += 2) {
    pairs[i] = _mm256_unpacklo_ps(rows[i], rows[i + 1]);
    pairs[i + 1] = _mm256_unpackhi_ps(rows[i], rows[i + 1]);
  }
  __m256 quads[8];
  for (int i = 0; i < 8; i += 4) {
    quads[i] = _mm256_shuffle_ps(pairs[i], pairs[i + 2], 0x44);
    quads[i + 1] = _mm256_shuffle_ps(pairs[i], pairs[i + 2], 0xee);
    quads[i + 2] = _mm256_shuffle_ps(pairs[i + 1], pairs[i + 3], 0x44);
    quads[i + 3] = _mm256_shuffle_ps(pairs[i + 1], pairs[i + 3], 0xee);
  }
  for (int i = 0; i < 4; ++i) {
    rows[i] = _mm256_permute2f128_ps(quads[i], quads[i + 4], 0x20);
    rows[i + 4] = _mm256_permute2f128_ps(quads[i], quads[i + 4], 0x31);
  }
}

// Eight rows by eight columns from `src`, transposed; rows from row_count on and columns from
// column_count on are zero and not read.
template <typename Element>
JIGE_INLINE void load_transposed(const Element* src, int64_t stride, int row_count,
                                 int column_count, __m256* columns) {
  for (int i = 0; i < 8; ++i) {
    columns[i] = i >= row_count      ? _mm256_setzero_ps()
                 : column_count >= 8 ? load_8(src + i * stride)
                                     : load_8_partial(src + i * stride, column_count);
  }
  transpose_8(columns);
}

// dst[c][j] = src[j][c] for j < row_count, zero for the other of the sixteen j.
template <typename Element>
JIGE_INLINE void pack_columns(const Element* src, int64_t stride, int row_count, int dim,
                              float* dst) {
  for (int c = 0; c < dim; c += 8) {
    const int column_count = dim - c < 8 ? dim - c : 8;
    __m256 low[8];
    __m256 high[8];
    load_transposed(src + c, stride, row_count, column_count, low);
    load_transposed(src + c + 8 * stride, stride, row_count - 8, column_count, high);
    for (int i = 0; i < column_count; ++i) join(low[i], high[i]).store(dst + (c + i) * 16);
  }
}

// dst[j][c] = src[j][c]·scale, zeros from `dim` up to the next multiple of 16.
template <typename Element>
JIGE_INLINE void pack_rows(const Element* src, int64_t stride, int row_count, int dim, float scale,
                           float* dst, int64_t dst_stride) {
  const F32x16 factor = F32x16::broadcast(scale);
  for (int j = 0; j < row_count; ++j) {
    for_each_vector<F32x16>(dim, [&](int64_t c, int lanes) {
      (load_lanes<F32x16>(src + j * stride + c, lanes) * factor).store(dst + j * dst_stride + c);
    });
  }
}

}  // namespace jige::cpu::JIGE_ISA_NS
