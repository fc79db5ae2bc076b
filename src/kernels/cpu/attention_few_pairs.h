// The products of few rows in pairs of depths: a vector of keys [d][16] holds two rows, an even and
// an odd depth, which interleaved are words of a pair; of values [16][d] two rows are interleaved
// by halves of 128 bits, whose order of columns is undone when sums are stored. Included by
// attention_few.h. Threads: values.
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

// scores[r] of the keys of kBlocks blocks from `block` on. Several blocks at a time are as many
// streams from memory.
template <int kRows, int kBlocks>
inline void score_few(const FewBlocks& keys, int block, const float* factors, float* scores) {
  __m512 chains[kBlocks][kRows];
  for (auto& rows : chains) {
    for (auto& chain : rows) chain = _mm512_setzero_ps();
  }
  for (int c = 0; c < keys.dim; c += 2) {
    for (int b = 0; b < kBlocks; ++b) {
      const __m512i halves = _mm512_loadu_si512(keys.at[block + b] + c * 16);
      _mm_prefetch(reinterpret_cast<const char*>(keys.next[block + b] + c * 16), _MM_HINT_T0);
      const auto words = reinterpret_cast<__m512bh>(interleave(halves));
      for (int r = 0; r < kRows; ++r) {
        const __m512bh query = pair_everywhere(factors + r * keys.dim * 8 + c / 2);
        chains[b][r] = _mm512_dpbf16_ps(chains[b][r], query, words);
      }
    }
  }
  for (int b = 0; b < kBlocks; ++b) {
    for (int r = 0; r < kRows; ++r) {
      _mm512_storeu_ps(scores + r * kAttentionScoresStride + (block + b) * 16, chains[b][r]);
    }
  }
}

// product[r][32·kChunks columns] = Σ weights[r][j]·values[j] of the keys j in `seen`.
template <int kRows, int kChunks>
inline void weigh_few(const FewBlocks& values, AttentionRange seen, int column,
                      const float* weights, float* product) {
  __m512 chains[kRows][2 * kChunks];
  for (auto& row : chains) {
    for (auto& chain : row) chain = _mm512_setzero_ps();
  }
  for (int j = seen.begin / 2 * 2; j < seen.end; j += 2) {
    const uint16_t* first = values.at[j / 16] + int64_t{j % 16} * values.dim + column;
    const uint16_t* next = values.next[j / 16] + int64_t{j % 16} * values.dim + column;
    // A value that is not seen may be anything.
    const __mmask32 has_first = j >= seen.begin ? ~__mmask32{0} : 0;
    const __mmask32 has_second = j + 1 < seen.end ? ~__mmask32{0} : 0;
    for (int i = 0; i < kChunks; ++i) {
      const __m512i even = _mm512_maskz_loadu_epi16(has_first, first + 32 * i);
      const __m512i odd = _mm512_maskz_loadu_epi16(has_second, first + values.dim + 32 * i);
      _mm_prefetch(reinterpret_cast<const char*>(next + 32 * i), _MM_HINT_T0);
      _mm_prefetch(reinterpret_cast<const char*>(next + values.dim + 32 * i), _MM_HINT_T0);
      const auto low = reinterpret_cast<__m512bh>(_mm512_unpacklo_epi16(even, odd));
      const auto high = reinterpret_cast<__m512bh>(_mm512_unpackhi_epi16(even, odd));
      for (int r = 0; r < kRows; ++r) {
        const __m512bh weight = pair_everywhere(weights + r * kAttentionTileKeys + j / 2);
        chains[r][2 * i] = _mm512_dpbf16_ps(chains[r][2 * i], weight, low);
        chains[r][2 * i + 1] = _mm512_dpbf16_ps(chains[r][2 * i + 1], weight, high);
      }
    }
  }
  // A lane of 128 bits of `low` has the first four of eight columns, one of `high` the others.
  const __m512i front = _mm512_setr_epi32(0, 1, 2, 3, 16, 17, 18, 19, 4, 5, 6, 7, 20, 21, 22, 23);
  const __m512i back =
      _mm512_setr_epi32(8, 9, 10, 11, 24, 25, 26, 27, 12, 13, 14, 15, 28, 29, 30, 31);
  for (int r = 0; r < kRows; ++r) {
    for (int i = 0; i < kChunks; ++i) {
      float* to = product + r * values.dim + column + 32 * i;
      const __m512 low = chains[r][2 * i];
      const __m512 high = chains[r][2 * i + 1];
      _mm512_storeu_ps(to, _mm512_permutex2var_ps(low, front, high));
      _mm512_storeu_ps(to + 16, _mm512_permutex2var_ps(low, back, high));
    }
  }
}

}  // namespace jige::cpu::JIGE_ISA_NS
