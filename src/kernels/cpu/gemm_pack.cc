#include "kernels/cpu/gemm_pack.h"

#include <algorithm>
#include <type_traits>

#include "kernels/cpu/gemm_pack_words.h"
#include "kernels/cpu/gemm_source.h"

namespace jige::cpu {
namespace {

// Memory rows that are packed for all lanes before the next ones, where lanes lie along them: few,
// so that every cache line is read once.
constexpr int64_t kDepthsAcross = 8;

// A range of whole lanes in memory rows, at most eight of them: dst[depth][width].
// `stored` lanes are written, those beyond lane_count as zeros. The same lanes of the next block
// are fetched meanwhile: rows of one stretch are too short for the processor to do so.
template <typename Source>
void transpose_lanes(const GemmOperand& operand, const GemmPackRange& range, int64_t stored,
                     int64_t width, float* dst) {
  const typename Source::Element* lanes[8];
  for (int64_t i = 0; i < range.lane_count; ++i) {
    lanes[i] = element_at<Source>(operand, range.lane_begin + i, range.depth_begin);
  }
  for (int64_t depth = 0; depth < range.depth_count; depth += 8) {
    const int64_t count = std::min<int64_t>(8, range.depth_count - depth);
    if (depth % kLineElements<Source> == 0) {
      for (int64_t i = 0; i < range.lane_count; ++i) {
        fetch(lanes[i] + width * operand.row_stride + depth);
      }
    }
    __m256 rows[8];
#pragma GCC unroll 8
    for (int i = 0; i < 8; ++i) {
      rows[i] = i >= range.lane_count ? _mm256_setzero_ps()
                : count == 8          ? Source::load(lanes[i] + depth)
                                      : load_some<Source>(lanes[i] + depth, count);
    }
    transpose_8x8(rows);
    for (int64_t i = 0; i < count; ++i) store_some(dst + (depth + i) * width, rows[i], stored);
  }
}

// Copies memory rows, which are depths, to dst[depth][Width], and fetches those that follow. Whole
// vectors are read where `readable` elements of the row allow it.
template <typename Source, int64_t Width>
void copy_lanes(const typename Source::Element* src, int64_t row_stride, int64_t depth_count,
                int64_t readable, float* dst) {
  for (int64_t depth = 0; depth < depth_count; ++depth) {
    for (int64_t i = 0; i < Width; i += kLineElements<Source>) {
      fetch(src + kDepthsAcross * row_stride + i);
    }
#pragma GCC unroll 4
    for (int64_t i = 0; i < Width; i += 8) {
      const __m256 lanes =
          i + 8 <= readable ? Source::load(src + i) : load_some<Source>(src + i, readable - i);
      store_some(dst + i, lanes, Width - i < 8 ? Width - i : 8);
    }
    src += row_stride;
    dst += Width;
  }
}

// One block of a chain operand: dst[depth][width], lanes beyond lane_count as zeros.
// `lane_end` is the end of the readable lanes.
template <typename Source>
void pack_chain_block(const GemmOperand& operand, const GemmPackRange& range, int64_t lane_end,
                      int64_t width, float* dst) {
  const auto* src = element_at<Source>(operand, range.lane_begin, range.depth_begin);
  const int64_t readable = lane_end - range.lane_begin;
  const auto copy = [&](auto constant) {
    copy_lanes<Source, constant()>(src, operand.row_stride, range.depth_count, readable, dst);
  };
  if (operand.depth_across) {
    if (range.lane_count == width && width == 6) return copy(std::integral_constant<int, 6>());
    if (range.lane_count == width && width == 12) return copy(std::integral_constant<int, 12>());
    if (range.lane_count == width && width == 16) return copy(std::integral_constant<int, 16>());
    if (range.lane_count == width && width == 32) return copy(std::integral_constant<int, 32>());
    for (int64_t depth = 0; depth < range.depth_count; ++depth) {
      float* row = dst + depth * width;
      read_row<Source>(src + depth * operand.row_stride, range.lane_count, row);
      std::fill(row + range.lane_count, row + width, 0.0f);
    }
  } else if (width == 1) {
    read_row<Source>(src, range.depth_count, dst);
  } else {
    for (int64_t lane = 0; lane < width; lane += 8) {
      GemmPackRange part = range;
      part.lane_begin += lane;
      part.lane_count = std::clamp<int64_t>(range.lane_count - lane, 0, 8);
      transpose_lanes<Source>(operand, part, std::min<int64_t>(8, width - lane), width, dst + lane);
    }
  }
}

// Depths packed for all lanes before the next.
int64_t depth_chunk(const GemmOperand& operand, int64_t depth_count) {
  return operand.depth_across ? kDepthsAcross : std::max<int64_t>(depth_count, 1);
}

template <typename Source>
void pack_chain_left(const GemmOperand& left, const GemmPackRange& range, int64_t rows,
                     float* dst) {
  const int64_t chunk = depth_chunk(left, range.depth_count);
  const int64_t lane_end = range.lane_begin + range.lane_count;
  for (int64_t depth = 0; depth < range.depth_count; depth += chunk) {
    for (int64_t lane = 0; lane < range.lane_count; lane += rows) {
      const GemmPackRange block = {range.lane_begin + lane, std::min(rows, range.lane_count - lane),
                                   range.depth_begin + depth,
                                   std::min(chunk, range.depth_count - depth)};
      pack_chain_block<Source>(left, block, lane_end, block.lane_count,
                               dst + lane * range.depth_count + depth * block.lane_count);
    }
  }
}

// Packs [depth][columns] f32 that hold bf16 values into words.
void pack_words(const float* src, int64_t depth_count, int64_t columns, uint32_t* dst) {
  const int64_t half = columns / 2;
  for (int64_t depth = 0; depth < depth_count; ++depth) {
    for (int64_t i = 0; i < half; i += 8) {
      const __m256i low = _mm256_castps_si256(_mm256_loadu_ps(src + i));
      const __m256i high = _mm256_castps_si256(_mm256_loadu_ps(src + half + i));
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(dst + i),
                          _mm256_or_si256(_mm256_srli_epi32(low, 16), high));
    }
    src += columns;
    dst += half;
  }
}

template <typename Source>
void pack_chain_right(const GemmEngine& engine, const GemmOperand& right,
                      const GemmPackRange& range, int64_t panel_bytes, std::byte* dst) {
  constexpr int64_t kDepthBuffered = 64;
  const bool words = engine.layout == GemmLayout::kChainBF16;
  const int64_t columns = engine.columns;
  const int64_t chunk = words ? std::min(kDepthBuffered, depth_chunk(right, kDepthBuffered))
                              : depth_chunk(right, range.depth_count);
  const int64_t lane_end = range.lane_begin + range.lane_count;
  for (int64_t depth = 0; depth < range.depth_count; depth += chunk) {
    for (int64_t lane = 0; lane < range.lane_count; lane += columns) {
      const GemmPackRange block = {
          range.lane_begin + lane, std::min(columns, range.lane_count - lane),
          range.depth_begin + depth, std::min(chunk, range.depth_count - depth)};
      std::byte* panel = dst + lane / columns * panel_bytes;
      if (words) {
        alignas(32) float buffer[kDepthBuffered * 32];
        pack_chain_block<Source>(right, block, lane_end, columns, buffer);
        pack_words(buffer, block.depth_count, columns,
                   reinterpret_cast<uint32_t*>(panel) + depth * columns / 2);
      } else {
        pack_chain_block<Source>(right, block, lane_end, columns,
                                 reinterpret_cast<float*>(panel) + depth * columns);
      }
    }
  }
}

// Blocks of `width` lanes one after the other, `block_bytes` apart; without `padded` the last one
// is as narrow as the lanes left.
template <typename Source>
void pack_pairs(const GemmOperand& operand, const GemmPackRange& range, int64_t width, bool padded,
                int64_t block_bytes, std::byte* dst) {
  // As for chains: memory rows that are depths are read along their length.
  const int64_t chunk =
      operand.depth_across ? kPairDepths : std::max<int64_t>(range.depth_count, 1);
  for (int64_t depth = 0; depth < range.depth_count; depth += chunk) {
    for (int64_t lane = 0; lane < range.lane_count; lane += width) {
      const GemmPackRange block = {
          range.lane_begin + lane, std::min(width, range.lane_count - lane),
          range.depth_begin + depth, std::min(chunk, range.depth_count - depth)};
      const int64_t stored = padded ? width : block.lane_count;
      std::byte* at = dst + lane / width * block_bytes + depth * stored * 2;
      pack_pair_block<Source>(operand, block, stored, reinterpret_cast<float*>(at));
    }
  }
}

// One tile, [16 rows][16 words]: the left stores lanes as rows of a tile, the right depth pairs.
template <typename Source, bool Left>
void pack_tile(const GemmOperand& operand, const GemmPackRange& range, int64_t lane, int64_t depth,
               float* tile) {
  for (int64_t block = 0; block < 4; ++block) {
    const int64_t lane_offset = 8 * (block / 2);
    const int64_t pair_offset = 8 * (block % 2);
    __m256 rows[8];
    load_words<Source>(operand, range, lane + lane_offset, depth + 2 * pair_offset, rows);
    if (Left == operand.depth_across) transpose_8x8(rows);
    const int64_t row = Left ? lane_offset : pair_offset;
    const int64_t column = Left ? pair_offset : lane_offset;
    for (int64_t i = 0; i < 8; ++i) _mm256_storeu_ps(tile + (row + i) * 16 + column, rows[i]);
  }
}

// Tiles of a range, lane groups `group_bytes` apart.
template <typename Source, bool Left>
void pack_tiles(const GemmEngine& engine, const GemmOperand& operand, const GemmPackRange& range,
                int64_t group_bytes, std::byte* dst, bool past_caches = false) {
  const int64_t whole_depth =
      engine.pack_tiles && operand.dtype != DType::kF16 ? range.depth_count / kTileDepth : 0;
  // As for chains: memory rows that are depths are read along their length.
  const int64_t step = operand.depth_across ? 1 : std::max<int64_t>(whole_depth, 1);
  const bool in_twos = !Left && operand.depth_across && operand.dtype == DType::kBF16;
  const int64_t tiles = gemm_padded_depth(engine, range.depth_count) / kTileDepth;
  for (int64_t tile = 0; tile < tiles;) {
    const int64_t count = tile < whole_depth ? step : 1;
    int64_t lanes = 0;
    for (int64_t lane = 0; lane < range.lane_count; lane += lanes) {
      std::byte* at = dst + lane / kTileLanes * group_bytes + tile * kTileElements * 2;
      const bool whole = tile < whole_depth && lane + kTileLanes <= range.lane_count;
      const bool two = whole && in_twos && lane + 2 * kTileLanes <= range.lane_count;
      lanes = two ? 2 * kTileLanes : kTileLanes;
      if (whole) {
        engine.pack_tiles({.src = element_at<Source>(operand, range.lane_begin + lane,
                                                     range.depth_begin + tile * kTileDepth),
                           .element_bytes = static_cast<int>(sizeof(typename Source::Element)),
                           .row_stride = operand.row_stride,
                           .depth_across = operand.depth_across,
                           .left = Left,
                           .tile_count = count,
                           .dst = at,
                           .dst_next = two ? at + group_bytes : nullptr,
                           .past_caches = past_caches});
        continue;
      }
      for (int64_t i = 0; i < count; ++i) {
        pack_tile<Source, Left>(operand, range, lane, (tile + i) * kTileDepth,
                                reinterpret_cast<float*>(at + i * kTileElements * 2));
      }
    }
    tile += count;
  }
}

// Where (lane, depth) lies in right panels of `depth_count` summed indices, in elements.
int64_t right_position(const GemmEngine& engine, int64_t lane, int64_t depth, int64_t depth_count) {
  const int64_t columns = engine.columns;
  const int64_t panel = lane / columns * columns * gemm_padded_depth(engine, depth_count);
  const int64_t column = lane % columns;
  switch (engine.layout) {
    case GemmLayout::kChainF32:
      return panel + depth * columns + column;
    case GemmLayout::kChainBF16:
      return panel + depth * columns + column % (columns / 2) * 2 + column / (columns / 2);
    case GemmLayout::kPairBF16:
      return panel + depth / 2 * columns * 2 + column * 2 + depth % 2;
    case GemmLayout::kTileBF16:
      break;
  }
  const int64_t tile = depth / kTileDepth * kTileElements;
  return panel + tile + depth % kTileDepth / 2 * 32 + column * 2 + depth % 2;
}

void put_element(const GemmEngine& engine, float value, int64_t position, void* panels) {
  if (engine.layout == GemmLayout::kChainF32) {
    static_cast<float*>(panels)[position] = value;
  } else {
    static_cast<BFloat16*>(panels)[position] = to_bfloat16(value);
  }
}

}  // namespace

void gemm_pack_left(const GemmEngine& engine, const GemmOperand& left, const GemmPackRange& range,
                    int64_t rows, void* dst) {
  if (engine.layout == GemmLayout::kTileBF16) {
    const int64_t group_bytes = gemm_padded_depth(engine, range.depth_count) * kTileLanes * 2;
    with_flushed_source(left.dtype, [&](auto source) {
      pack_tiles<decltype(source), true>(engine, left, range, group_bytes,
                                         static_cast<std::byte*>(dst));
    });
    return;
  }
  if (engine.layout == GemmLayout::kPairBF16) {
    const int64_t block_bytes = gemm_left_block_bytes(engine, range.depth_count, rows);
    with_flushed_source(left.dtype, [&](auto source) {
      pack_pairs<decltype(source)>(left, range, rows, false, block_bytes,
                                   static_cast<std::byte*>(dst));
    });
    return;
  }
  with_source(left.dtype, left.round_to_bf16, [&](auto source) {
    pack_chain_left<decltype(source)>(left, range, rows, static_cast<float*>(dst));
  });
}

void gemm_pack_right(const GemmEngine& engine, const GemmOperand& right, const GemmPackRange& range,
                     int64_t panel_bytes, void* dst, bool past_caches) {
  std::byte* bytes = static_cast<std::byte*>(dst);
  if (engine.layout == GemmLayout::kTileBF16) {
    with_flushed_source(right.dtype, [&](auto source) {
      pack_tiles<decltype(source), false>(engine, right, range, panel_bytes, bytes, past_caches);
    });
    return;
  }
  if (engine.layout == GemmLayout::kPairBF16) {
    with_flushed_source(right.dtype, [&](auto source) {
      pack_pairs<decltype(source)>(right, range, engine.columns, true, panel_bytes, bytes);
    });
    return;
  }
  with_source(right.dtype, right.round_to_bf16, [&](auto source) {
    pack_chain_right<decltype(source)>(engine, right, range, panel_bytes, bytes);
  });
}

void gemm_pack_right_elements(const GemmEngine& engine, const GemmOperand& right,
                              const GemmPackRange& range, int64_t depth, void* panels) {
  const auto pack = [&](auto source) {
    using Source = decltype(source);
    constexpr int64_t kRead = 64;  // numbers of a row of memory, which is a depth or a lane
    const int64_t rows = right.depth_across ? range.depth_count : range.lane_count;
    const int64_t length = right.depth_across ? range.lane_count : range.depth_count;
    for (int64_t row = 0; row < rows; ++row) {
      for (int64_t begin = 0; begin < length; begin += kRead) {
        const int64_t count = std::min(kRead, length - begin);
        const auto lane_of = [&](int64_t i) { return right.depth_across ? begin + i : row; };
        const auto depth_of = [&](int64_t i) { return right.depth_across ? row : begin + i; };
        float values[kRead];
        read_row<Source>(element_at<Source>(right, lane_of(0), depth_of(0)), count, values);
        for (int64_t i = 0; i < count; ++i) {
          put_element(engine, values[i],
                      right_position(engine, range.lane_begin + lane_of(i),
                                     range.depth_begin + depth_of(i), depth),
                      panels);
        }
      }
    }
  };
  if (gemm_flushes(engine)) {
    with_flushed_source(right.dtype, pack);
  } else {
    with_source(right.dtype, right.round_to_bf16, pack);
  }
}

void gemm_zero_right_elements(const GemmEngine& engine, const GemmPackRange& range, int64_t depth,
                              void* panels) {
  for (int64_t lane = range.lane_begin; lane < range.lane_begin + range.lane_count; ++lane) {
    for (int64_t k = range.depth_begin; k < range.depth_begin + range.depth_count; ++k) {
      put_element(engine, 0, right_position(engine, lane, k, depth), panels);
    }
  }
}

}  // namespace jige::cpu
