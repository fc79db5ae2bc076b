// The two products of attention for one position over a paged cache of bf16 or of 8 bits, where
// they lie: the bits of the products of tiles without packing, for products bound by the reading of
// keys and values. How a step is read and summed is in attention_few_amx.h and
// attention_few_pairs.h.
//
// REQUIRES: a head dimension that is a multiple of 32; denormals are zeros (ZeroDenormals).
// Threads: values.
#pragma once

#include "kernels/cpu/attention_tiled_layout.h"
#include "kernels/cpu/attention_tiles.h"

namespace jige::cpu::JIGE_ISA_NS {

// Where the keys or values of a tile are, of every 16 keys, and those of the next tile, which are
// fetched meanwhile.
template <typename Element>  // uint16_t: bf16; int8_t
struct FewBlocks {
  const Element* at[kAttentionTileKeys / 16];
  const Element* next[kAttentionTileKeys / 16];
  int dim;
};

// Asks for the lines of so many elements.
template <int kCount, typename Element>
JIGE_INLINE void fetch_elements(const Element* elements) {
  for (size_t i = 0; i < kCount * sizeof(Element); i += 64) {
    _mm_prefetch(reinterpret_cast<const char*>(elements) + i, _MM_HINT_T0);
  }
}

}  // namespace jige::cpu::JIGE_ISA_NS

#ifdef __AMX_BF16__
#include "kernels/cpu/attention_few_amx.h"
#else
#include "kernels/cpu/attention_few_pairs.h"
#endif

namespace jige::cpu::JIGE_ISA_NS {

// Scores of the blocks [begin, end).
template <int kRows, typename Element>
inline void score_blocks(const FewBlocks<Element>& keys, int begin, int end, const float* factors,
                         float* scores) {
  constexpr int kBlocks = kRows == 1 ? 4 : 2;
  for (; begin + kBlocks <= end; begin += kBlocks) {
    score_few<kRows, kBlocks>(keys, begin, factors, scores);
  }
  for (; begin < end; ++begin) score_few<kRows, 1>(keys, begin, factors, scores);
}

// product[r] in the columns from one on, 32·kChunks at a time, and what is left in fewer.
template <int kRows, int kChunks, typename Element>
inline void weigh_from(const FewBlocks<Element>& values, AttentionRange seen, int column,
                       const float* weights, float* product) {
  for (; column + 32 * kChunks <= values.dim; column += 32 * kChunks) {
    weigh_few<kRows, kChunks>(values, seen, column, weights, product);
  }
  if constexpr (kChunks > 1) {
    weigh_from<kRows, kChunks / 2>(values, seen, column, weights, product);
  }
}

// product[r] in all columns, of up to kMost rows at a time. The fewer rows, the more columns the
// registers hold, and the longer the stretches of memory that are read.
template <int kRows, int kMost, typename Element>
inline void weigh_columns(const FewBlocks<Element>& values, AttentionRange seen,
                          const float* weights, float* product) {
  constexpr int kNow = kRows < kMost ? kRows : kMost;
  constexpr int kChunks = kNow > 4 ? 1 : kNow > 2 ? 2 : kFewChunksMost;
  weigh_from<kNow, kChunks>(values, seen, 0, weights, product);
  if constexpr (kRows > kNow) {
    weigh_columns<kRows - kNow, kMost>(values, seen, weights + kNow * kAttentionTileKeys,
                                       product + kNow * values.dim);
  }
}

template <int kValue>
struct RowCount {
  static constexpr int value = kValue;
};

// Calls body(RowCount) for a number of rows. REQUIRES: 1 … kFewRows.
template <int kRows = 1, typename Body>
JIGE_INLINE void with_few_rows(int rows, Body&& body) {
  if constexpr (kRows < kFewRows) {
    if (rows > kRows) return with_few_rows<kRows + 1>(rows, body);
  }
  body(RowCount<kRows>());
}

}  // namespace jige::cpu::JIGE_ISA_NS
