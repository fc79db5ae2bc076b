// The products of few rows with the bits of AMX tiles, in vectors of f32.
//
// Two neighbours in memory are one word of 32 bits: shifted up, it is the first as f32; with its
// lower half cleared, the second. A vector of keys holds two rows of [d][16], that is an even and
// an odd depth, and so the even and the odd chain of a tile product are the halves of its sums.
// Values are [16][d]: even and odd keys have sums of their own. Bytes are widened in the order of
// their keys or columns, a vector for each depth and sixteen columns. Included by attention_few.h.
// Threads: values.
#pragma once

#include "kernels/cpu/attention_pack_tiles.h"

namespace jige::cpu::JIGE_ISA_NS {

// With more rows tiles are faster than vectors.
inline constexpr int kFewRows = kAttentionFewRows / 2;
// 64 columns of values at a time: even and odd keys have sums of their own.
inline constexpr int kFewChunksMost = 2;
// Rows that are multiplied by values at a time.
template <typename, int>
inline constexpr int kValueRows = 2;

JIGE_INLINE __m512 first_of_words(__m512i words) {
  return _mm512_castsi512_ps(_mm512_slli_epi32(words, 16));
}
JIGE_INLINE __m512 second_of_words(__m512i words) {
  return _mm512_castsi512_ps(_mm512_and_si512(words, _mm512_set1_epi32(~0xffff)));
}

// Sixteen numbers of which the even ones and the odd ones are given.
JIGE_INLINE __m512 in_turns(__m256 even, __m256 odd) {
  const __m512i order = _mm512_setr_epi32(0, 8, 1, 9, 2, 10, 3, 11, 4, 12, 5, 13, 6, 14, 7, 15);
  return _mm512_permutexvar_ps(order, _mm512_insertf32x8(_mm512_castps256_ps512(even), odd, 1));
}

struct VectorPair {
  __m512 at[2];
};

// 32 numbers: sixteen keys in two depths, or 32 columns of a value.
JIGE_INLINE VectorPair widen_two(const uint16_t* numbers) {
  const __m512i words = _mm512_loadu_si512(numbers);
  return {{first_of_words(words), second_of_words(words)}};
}
JIGE_INLINE VectorPair widen_two(const int8_t* numbers) {
  return {{F32x16::load(numbers).v, F32x16::load(numbers + 16).v}};
}
// What vector `i` of two depths is multiplied by, of a row's factors from the first one's on.
template <typename Element>
JIGE_INLINE __m512 depth_factor(const float* factors, int i) {
  if constexpr (sizeof(Element) == 2) return _mm512_loadu_ps(factors);
  return _mm512_set1_ps(factors[i * 8]);
}

// Half `i` of what the even and the odd depth's chains of a step add to: of halves the even or the
// odd keys, of bytes the first or the last eight.
template <typename Element>
JIGE_INLINE __m256 step_sum(const __m512 (&chains)[2], int i) {
  const auto half = [](__m512 sums, int j) {
    return j == 0 ? _mm512_castps512_ps256(sums) : _mm512_extractf32x8_ps(sums, 1);
  };
  if constexpr (sizeof(Element) == 2) return _mm256_add_ps(half(chains[i], 0), half(chains[i], 1));
  return _mm256_add_ps(half(chains[0], i), half(chains[1], i));
}
template <typename Element>
JIGE_INLINE __m512 in_order(__m256 first, __m256 second) {
  if constexpr (sizeof(Element) == 2) return in_turns(first, second);
  return _mm512_insertf32x8(_mm512_castps256_ps512(first), second, 1);
}

// The sums of 32 columns of values in order.
template <typename Element>
JIGE_INLINE VectorPair columns_in_order(__m512 first, __m512 second) {
  if constexpr (sizeof(Element) == 1) return {{first, second}};
  return {{in_turns(_mm512_castps512_ps256(first), _mm512_castps512_ps256(second)),
           in_turns(_mm512_extractf32x8_ps(first, 1), _mm512_extractf32x8_ps(second, 1))}};
}

// A row of q as factors of keys: q[c] eight times, q[c + 1] eight times.
inline void spread_query(const uint16_t* q, int dim, float* factors) {
  for (int c = 0; c < dim; ++c) {
    const float value = to_f32(Bf16{q[c]});
    _mm256_storeu_ps(factors + c * 8, _mm256_set1_ps(value));
  }
}

// A row of weights in f32.
inline void spread_weights(const uint16_t* weights, float* spread) {
  for (int j = 0; j < kAttentionTileKeys; j += 16) {
    F32x16::load(reinterpret_cast<const Bf16*>(weights + j)).store(spread + j);
  }
}

// scores[r] of the keys of kBlocks blocks from `block` on. Several blocks at a time are as many
// streams from memory.
template <int kRows, int kBlocks, typename Element>
inline void score_few(const FewBlocks<Element>& keys, int block, const float* factors,
                      float* scores) {
  const int dim = keys.dim;
  __m256 sums[kBlocks][kRows][2];
  for (auto& rows : sums) {
    for (auto& sum : rows) sum[0] = sum[1] = _mm256_setzero_ps();
  }
  for (int step = 0; step < dim; step += 32) {
    __m512 chains[kBlocks][kRows][2];
    for (auto& rows : chains) {
      for (auto& chain : rows) chain[0] = chain[1] = _mm512_setzero_ps();
    }
    for (int c = step; c < step + 32; c += 2) {
      for (int b = 0; b < kBlocks; ++b) {
        const VectorPair pair = widen_two(keys.at[block + b] + c * 16);
        fetch_elements<2 * 16>(keys.next[block + b] + c * 16);
        for (int r = 0; r < kRows; ++r) {
          for (int i = 0; i < 2; ++i) {
            const __m512 query = depth_factor<Element>(factors + (r * dim + c) * 8, i);
            chains[b][r][i] = _mm512_fmadd_ps(query, pair.at[i], chains[b][r][i]);
          }
        }
      }
    }
    for (int b = 0; b < kBlocks; ++b) {
      for (int r = 0; r < kRows; ++r) {
        for (int i = 0; i < 2; ++i) {
          sums[b][r][i] = _mm256_add_ps(sums[b][r][i], step_sum<Element>(chains[b][r], i));
        }
      }
    }
  }
  for (int b = 0; b < kBlocks; ++b) {
    for (int r = 0; r < kRows; ++r) {
      _mm512_storeu_ps(scores + r * kAttentionScoresStride + (block + b) * 16,
                       in_order<Element>(sums[b][r][0], sums[b][r][1]));
    }
  }
}

// product[r][32·kChunks columns] = Σ weights[r][j]·values[j] of the keys j in `seen`.
template <int kRows, int kChunks, typename Element>
inline void weigh_few(const FewBlocks<Element>& values, AttentionRange seen, int column,
                      const float* weights, float* product) {
  __m512 sums[kRows][2 * kChunks];
#pragma GCC unroll 4
  for (auto& row : sums) {
#pragma GCC unroll 4
    for (auto& sum : row) sum = _mm512_setzero_ps();
  }
  for (int step = seen.begin / 32 * 32; step < seen.end; step += 32) {
    __m512 chains[2][kRows][2 * kChunks];  // of even and of odd keys
#pragma GCC unroll 2
    for (auto& rows : chains) {
#pragma GCC unroll 4
      for (auto& row : rows) {
#pragma GCC unroll 4
        for (auto& chain : row) chain = _mm512_setzero_ps();
      }
    }
    const int end = step + 32 < seen.end ? step + 32 : seen.end;
    const auto add = [&](int j, auto& chain) {
      const int64_t at = int64_t{j % 16} * values.dim + column;
      fetch_elements<32 * kChunks>(values.next[j / 16] + at);
#pragma GCC unroll 2
      for (int i = 0; i < kChunks; ++i) {
        const VectorPair pair = widen_two(values.at[j / 16] + at + 32 * i);
#pragma GCC unroll 4
        for (int r = 0; r < kRows; ++r) {
          const __m512 weight = _mm512_set1_ps(weights[r * kAttentionTileKeys + j]);
          chain[r][2 * i] = _mm512_fmadd_ps(weight, pair.at[0], chain[r][2 * i]);
          chain[r][2 * i + 1] = _mm512_fmadd_ps(weight, pair.at[1], chain[r][2 * i + 1]);
        }
      }
    };
    int j = step > seen.begin ? step : seen.begin;
    if (j % 2 == 1) add(j++, chains[1]);
    for (; j + 2 <= end; j += 2) {
      add(j, chains[0]);
      add(j + 1, chains[1]);
    }
    if (j < end) add(j, chains[0]);
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
      for (int i = 0; i < 2 * kChunks; ++i) {
        sums[r][i] = _mm512_add_ps(sums[r][i], _mm512_add_ps(chains[0][r][i], chains[1][r][i]));
      }
    }
  }
#pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 2
    for (int i = 0; i < kChunks; ++i) {
      float* to = product + r * values.dim + column + 32 * i;
      const VectorPair columns = columns_in_order<Element>(sums[r][2 * i], sums[r][2 * i + 1]);
      _mm512_storeu_ps(to, columns.at[0]);
      _mm512_storeu_ps(to + 16, columns.at[1]);
    }
  }
}

}  // namespace jige::cpu::JIGE_ISA_NS
