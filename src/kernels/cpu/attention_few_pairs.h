// The products of few rows in pairs of depths: a vector of keys [d][16] holds two rows, an even and
// an odd depth, which interleaved are words of a pair; of values [16][d] two rows are interleaved
// by halves of 128 bits, whose order of columns is undone when sums are stored. Bytes become words
// in the order of their columns. Included by attention_few.h. Threads: values.
#pragma once

#include "kernels/cpu/attention_pack_tiles.h"

namespace jige::cpu::JIGE_ISA_NS {

// A row of q, and one of weights: their words are read one by one, as they are.
inline void spread_query(const uint16_t* q, int dim, float* factors) {
  std::memcpy(factors, q, sizeof(*q) * static_cast<size_t>(dim));
}
inline void spread_weights(const uint16_t* weights, float* spread) {
  std::memcpy(spread, weights, sizeof(*weights) * kAttentionTileKeys);
}

inline constexpr int kFewRows = kAttentionFewRows;
// Of up to two rows 128 columns of values, 16 sums, are multiplied at a time.
inline constexpr int kFewChunksMost = 4;
// Of so many rows, those that are multiplied by values at a time: words of bytes are dear.
template <typename Element, int kRows>
inline constexpr int kValueRows = sizeof(Element) == 1 ? 8
                                  : kRows > 4          ? 4
                                                       : 2;

// Sixteen keys in two depths.
JIGE_INLINE __m512bh depth_pair(const uint16_t* keys) {
  return reinterpret_cast<__m512bh>(interleave(_mm512_loadu_si512(keys)));
}
JIGE_INLINE __m512bh depth_pair(const int8_t* keys) {
  return reinterpret_cast<__m512bh>(pair_of_bytes(keys, 16));
}

// 32 columns of two values.
struct ValuePair {
  __m512bh low, high;
};
// Halves may be anything in a row that is not seen; bytes are finite, and their weight is zero.
JIGE_INLINE ValuePair value_pair(const uint16_t* values, int stride, bool first, bool second) {
  const __m512i even = _mm512_maskz_loadu_epi16(first ? ~__mmask32{0} : 0, values);
  const __m512i odd = _mm512_maskz_loadu_epi16(second ? ~__mmask32{0} : 0, values + stride);
  return {reinterpret_cast<__m512bh>(_mm512_unpacklo_epi16(even, odd)),
          reinterpret_cast<__m512bh>(_mm512_unpackhi_epi16(even, odd))};
}
JIGE_INLINE ValuePair value_pair(const int8_t* values, int stride, bool, bool) {
  return {reinterpret_cast<__m512bh>(pair_of_bytes(values, stride)),
          reinterpret_cast<__m512bh>(pair_of_bytes(values + 16, stride))};
}

// Stores 32 columns of sums whose factors value_pair() gave.
template <typename Element>
JIGE_INLINE void store_columns(__m512 low, __m512 high, float* to) {
  if constexpr (sizeof(Element) == 2) {
    // A lane of 128 bits of `low` has the first four of eight columns, one of `high` the others.
    const __m512i front = _mm512_setr_epi32(0, 1, 2, 3, 16, 17, 18, 19, 4, 5, 6, 7, 20, 21, 22, 23);
    const __m512i back =
        _mm512_setr_epi32(8, 9, 10, 11, 24, 25, 26, 27, 12, 13, 14, 15, 28, 29, 30, 31);
    _mm512_storeu_ps(to, _mm512_permutex2var_ps(low, front, high));
    _mm512_storeu_ps(to + 16, _mm512_permutex2var_ps(low, back, high));
  } else {
    _mm512_storeu_ps(to, low);
    _mm512_storeu_ps(to + 16, high);
  }
}

// scores[r] of the keys of kBlocks blocks from `block` on. Several blocks at a time are as many
// streams from memory.
template <int kRows, int kBlocks, typename Element>
inline void score_few(const FewBlocks<Element>& keys, int block, const float* factors,
                      float* scores) {
  __m512 chains[kBlocks][kRows];
#pragma GCC unroll 4
  for (auto& rows : chains) {
#pragma GCC unroll 8
    for (auto& chain : rows) chain = _mm512_setzero_ps();
  }
  constexpr int kDepths = 4 / sizeof(Element);  // of a line
  for (int c = 0; c < keys.dim; c += kDepths) {
#pragma GCC unroll 4
    for (int b = 0; b < kBlocks; ++b) {
      fetch_elements<kDepths * 16>(keys.next[block + b] + c * 16);
#pragma GCC unroll 2
      for (int pair = c; pair < c + kDepths; pair += 2) {
        const __m512bh words = depth_pair(keys.at[block + b] + pair * 16);
#pragma GCC unroll 8
        for (int r = 0; r < kRows; ++r) {
          const __m512bh query = pair_everywhere(factors + r * keys.dim * 8 + pair / 2);
          chains[b][r] = _mm512_dpbf16_ps(chains[b][r], query, words);
        }
      }
    }
  }
#pragma GCC unroll 4
  for (int b = 0; b < kBlocks; ++b) {
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      _mm512_storeu_ps(scores + r * kAttentionScoresStride + (block + b) * 16, chains[b][r]);
    }
  }
}

// product[r][32·kChunks columns] = Σ weights[r][j]·values[j] of the keys j in `seen`.
template <int kRows, int kChunks, typename Element>
inline void weigh_few(const FewBlocks<Element>& values, AttentionRange seen, int column,
                      const float* weights, float* product) {
  __m512 chains[kRows][2 * kChunks];
#pragma GCC unroll 8
  for (auto& row : chains) {
#pragma GCC unroll 8
    for (auto& chain : row) chain = _mm512_setzero_ps();
  }
  for (int j = seen.begin / 2 * 2; j < seen.end; j += 2) {
    const int64_t at = int64_t{j % 16} * values.dim + column;
    const Element* next = values.next[j / 16] + at;
#pragma GCC unroll 4
    for (int i = 0; i < kChunks; ++i) {
      const ValuePair pair = value_pair(values.at[j / 16] + at + 32 * i, values.dim,
                                        j >= seen.begin, j + 1 < seen.end);
      if (i * 32 * sizeof(Element) % 64 == 0) {
        fetch_elements<32>(next + 32 * i);
        fetch_elements<32>(next + values.dim + 32 * i);
      }
#pragma GCC unroll 8
      for (int r = 0; r < kRows; ++r) {
        const __m512bh weight = pair_everywhere(weights + r * kAttentionTileKeys + j / 2);
        chains[r][2 * i] = _mm512_dpbf16_ps(chains[r][2 * i], weight, pair.low);
        chains[r][2 * i + 1] = _mm512_dpbf16_ps(chains[r][2 * i + 1], weight, pair.high);
      }
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
    for (int i = 0; i < kChunks; ++i) {
      store_columns<Element>(chains[r][2 * i], chains[r][2 * i + 1],
                             product + r * values.dim + column + 32 * i);
    }
  }
}

}  // namespace jige::cpu::JIGE_ISA_NS
