// Reading operands of products for packing, and the words of the pair engine: a word is two
// neighbours along the depth as bf16, the first in the low half.
//
// Inner part of gemm_pack.cc. Threads: no state.
#pragma once

#include <immintrin.h>

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "kernels/cpu/gemm_pack.h"
#include "kernels/cpu/gemm_source.h"

namespace jige::cpu {

template <typename Source>
const typename Source::Element* element_at(const GemmOperand& operand, int64_t lane,
                                           int64_t depth) {
  const int64_t row = operand.depth_across ? depth : lane;
  const int64_t column = operand.depth_across ? lane : depth;
  return static_cast<const typename Source::Element*>(operand.data) + row * operand.row_stride +
         column;
}

template <typename Source>
inline constexpr int64_t kLineElements = 64 / sizeof(typename Source::Element);

inline void fetch(const void* line) { _mm_prefetch(static_cast<const char*>(line), _MM_HINT_T0); }

// The first `count` lanes, nothing beyond. Inline, since `count` is mostly a constant.
[[gnu::always_inline]] inline void store_some(float* dst, __m256 value, int64_t count) {
  if (count == 8) {
    _mm256_storeu_ps(dst, value);
    return;
  }
  __m128 rest = _mm256_castps256_ps128(value);
  if (count & 4) {
    _mm_storeu_ps(dst, rest);
    dst += 4;
    rest = _mm256_extractf128_ps(value, 1);
  }
  if (count & 2) {
    _mm_storel_pi(reinterpret_cast<__m64*>(dst), rest);
    dst += 2;
    rest = _mm_movehl_ps(rest, rest);
  }
  if (count & 1) _mm_store_ss(dst, rest);
}

// Depths of pairs that are packed at a time.
inline constexpr int64_t kPairDepths = 16;

// Two rows of bf16 values as words: `even` in the low, `odd` in the high halves.
inline __m256 join_rows(__m256 even, __m256 odd) {
  const __m256i low = _mm256_srli_epi32(_mm256_castps_si256(even), 16);
  return _mm256_castsi256_ps(_mm256_or_si256(low, _mm256_castps_si256(odd)));
}

// Sixteen values of one row, in two vectors, as words of neighbours.
inline __m256 join_neighbours(__m256 first, __m256 second) {
  const __m256i low = _mm256_srli_epi32(_mm256_castps_si256(first), 16);
  const __m256i high = _mm256_srli_epi32(_mm256_castps_si256(second), 16);
  return _mm256_castsi256_ps(_mm256_permute4x64_epi64(_mm256_packus_epi32(low, high), 0xd8));
}

template <typename Source>
__m256 load_up_to_8(const typename Source::Element* src, int64_t count) {
  if (count >= 8) return Source::load(src);
  return count > 0 ? load_some<Source>(src, count) : _mm256_setzero_ps();
}

// Eight words of neighbours from one memory row.
template <typename Source>
__m256 load_neighbours(const typename Source::Element* src) {
  if constexpr (std::is_same_v<Source, SourceBF16>) {
    return _mm256_loadu_ps(reinterpret_cast<const float*>(src));
  } else {
    return join_neighbours(Source::load(src), Source::load(src + 8));
  }
}

// Eight lanes times eight depth pairs of words, rows in memory order: rows[i] is lane i, or with
// depth_across pair i. What lies outside the range is zero.
template <typename Source>
void load_words(const GemmOperand& operand, const GemmPackRange& range, int64_t lane, int64_t depth,
                __m256 (&rows)[8]) {
  const int64_t lanes_left = range.lane_count - lane;
  const int64_t depths_left = range.depth_count - depth;
  if (depths_left >= 16 && (lanes_left >= 8 || !operand.depth_across)) {
    const auto* src =
        element_at<Source>(operand, range.lane_begin + lane, range.depth_begin + depth);
    const int64_t stride = operand.row_stride;
#pragma GCC unroll 8
    for (int64_t i = 0; i < 8; ++i) {
      rows[i] = operand.depth_across ? join_rows(Source::load(src + 2 * i * stride),
                                                 Source::load(src + (2 * i + 1) * stride))
                : i < lanes_left     ? load_neighbours<Source>(src + i * stride)
                                     : _mm256_setzero_ps();
    }
    return;
  }
  for (int64_t i = 0; i < 8; ++i) {
    rows[i] = _mm256_setzero_ps();
    if (operand.depth_across) {
      if (2 * i >= depths_left || lanes_left <= 0) continue;
      const auto* src =
          element_at<Source>(operand, range.lane_begin + lane, range.depth_begin + depth + 2 * i);
      const __m256 odd = 2 * i + 1 < depths_left
                             ? load_up_to_8<Source>(src + operand.row_stride, lanes_left)
                             : _mm256_setzero_ps();
      rows[i] = join_rows(load_up_to_8<Source>(src, lanes_left), odd);
    } else {
      if (i >= lanes_left || depths_left <= 0) continue;
      const auto* src =
          element_at<Source>(operand, range.lane_begin + lane + i, range.depth_begin + depth);
      rows[i] = join_neighbours(
          load_up_to_8<Source>(src, depths_left),
          depths_left > 8 ? load_up_to_8<Source>(src + 8, depths_left - 8) : _mm256_setzero_ps());
    }
  }
}

// Words of `count` values of two rows: those of `even` in the low, those of `odd` in the high
// halves.
inline void interleave_rows(const BFloat16* even, const BFloat16* odd, int64_t count,
                            uint32_t* dst) {
  const auto load = [](const BFloat16* src) {
    return _mm_loadu_si128(reinterpret_cast<const __m128i*>(src));
  };
  const auto store = [](uint32_t* to, __m128i words) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to), words);
  };
  int64_t i = 0;
  for (; i + 8 <= count; i += 8) {
    const __m128i low = load(even + i), high = load(odd + i);
    store(dst + i, _mm_unpacklo_epi16(low, high));
    store(dst + i + 4, _mm_unpackhi_epi16(low, high));
  }
  if (i + 4 <= count) {
    const auto load_4 = [](const BFloat16* src) {
      return _mm_loadl_epi64(reinterpret_cast<const __m128i*>(src));
    };
    store(dst + i, _mm_unpacklo_epi16(load_4(even + i), load_4(odd + i)));
    i += 4;
  }
  for (; i < count; ++i) dst[i] = even[i].bits | static_cast<uint32_t>(odd[i].bits) << 16;
}

// One block of a pair operand of bf16 whose memory rows are depths, with all its lanes.
inline void interleave_block(const GemmOperand& operand, const GemmPackRange& range,
                             uint32_t* dst) {
  static constexpr BFloat16 kZeros[64] = {};  // wider than any block
  const int64_t width = range.lane_count;
  const auto* src = element_at<SourceBF16>(operand, range.lane_begin, range.depth_begin);
  for (int64_t depth = 0; depth < range.depth_count; depth += 2) {
    const auto* odd = depth + 1 < range.depth_count ? src + operand.row_stride : kZeros;
    fetch(src + kPairDepths * operand.row_stride);
    fetch(src + (kPairDepths + 1) * operand.row_stride);
    interleave_rows(src, odd, width, dst);
    src += 2 * operand.row_stride;
    dst += width;
  }
}

// One block of a pair operand: dst[pair of depths][width] words, lanes beyond lane_count as zeros.
template <typename Source>
void pack_pair_block(const GemmOperand& operand, const GemmPackRange& range, int64_t width,
                     float* dst) {
  if constexpr (std::is_same_v<Source, SourceBF16>) {
    if (operand.depth_across && range.lane_count == width) {
      return interleave_block(operand, range, reinterpret_cast<uint32_t*>(dst));
    }
  }
  for (int64_t lane = 0; lane < width; lane += 8) {
    const int64_t stored = std::min<int64_t>(8, width - lane);
    for (int64_t depth = 0; depth < range.depth_count; depth += kPairDepths) {
      __m256 rows[8];
      if (!operand.depth_across && depth % kLineElements<Source> == 0) {
        const auto* next =
            element_at<Source>(operand, range.lane_begin + lane + width, range.depth_begin + depth);
        for (int64_t i = 0; i < stored; ++i) fetch(next + i * operand.row_stride);
      }
      load_words<Source>(operand, range, lane, depth, rows);
      if (!operand.depth_across) transpose_8x8(rows);
      const int64_t pairs = std::min<int64_t>(8, (range.depth_count - depth + 1) / 2);
      float* at = dst + depth / 2 * width + lane;
      for (int64_t i = 0; i < pairs; ++i) store_some(at + i * width, rows[i], stored);
    }
  }
}

}  // namespace jige::cpu
