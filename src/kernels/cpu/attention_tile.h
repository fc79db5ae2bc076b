// The two products of attention, blocked in registers, for the sources compiled once per
// instruction set.
//
//   scores_tile   S[r][j] = Σ_c q[r][c]·k[j][c]: keys are lanes ([d][16] columns), c ascending
//   product_tile  out[r] = α[r]·out[r] + Σ_j a[r][j]·b[j]: columns of b are lanes, j ascending over
//                 the range of j that r sees, and over no other
// Every element is one chain of fused multiply-adds, so blocking leaves no trace in the bits.
// Threads: values.
#pragma once

#include "kernels/cpu/attention_layout.h"
#include "kernels/cpu/simd.h"

namespace jige::cpu::JIGE_ISA_NS {

inline constexpr int kGroupRows = 6;  // rows whose sums are in registers at a time
inline constexpr int kVectorsOf16 = 16 / F32::kLanes;
// Accumulators at a time: what the register file holds beside the operands.
inline constexpr int kAccumulatorsMax = F32::kLanes == 16 ? 24 : 12;

// How many groups of 16 lanes (1, 2 or 4) go with `rows` rows.
constexpr int lane_groups(int rows) {
  for (int groups = 4; groups > 1; groups /= 2) {
    if (rows * groups * kVectorsOf16 <= kAccumulatorsMax) return groups;
  }
  return 1;
}

// The keys that some row of a group sees are [first, last), those that all see [begin, end).
struct GroupRange {
  int32_t first = INT32_MAX, last = 0;
  int32_t begin = 0, end = INT32_MAX;

  bool empty() const { return first >= last; }
};

JIGE_INLINE GroupRange group_range(const AttentionRange* ranges, int rows) {
  GroupRange group;
  for (int r = 0; r < rows; ++r) {
    const AttentionRange range = ranges[r];
    if (range.begin < range.end) {
      group.first = range.begin < group.first ? range.begin : group.first;
      group.last = range.end > group.last ? range.end : group.last;
    }
    group.begin = range.begin > group.begin ? range.begin : group.begin;
    group.end = range.end < group.end ? range.end : group.end;
  }
  if (group.begin >= group.end) group.begin = group.end = group.last;
  return group;
}

// Rows in groups of kGroupRows; the last may be smaller.
inline constexpr int kGroupsMax = (kAttentionRowsMax + kGroupRows - 1) / kGroupRows;

struct Groups {
  int count = 0;
  int whole = 0;  // of kGroupRows
  int last_rows = 0;
  GroupRange range[kGroupsMax];

  JIGE_INLINE int rows_of(int i) const { return i < whole ? kGroupRows : last_rows; }
};

JIGE_INLINE Groups make_groups(const AttentionRange* ranges, int row_count) {
  Groups groups;
  groups.count = (row_count + kGroupRows - 1) / kGroupRows;
  groups.whole = row_count / kGroupRows;
  groups.last_rows = row_count % kGroupRows;
  for (int i = 0; i < groups.count; ++i) {
    groups.range[i] = group_range(ranges + i * kGroupRows, groups.rows_of(i));
  }
  return groups;
}

template <int kValue>
struct Constant {
  static constexpr int value = kValue;
};

// Runs body(Constant<rows>()) for a group that is not whole; nothing for none.
template <typename Body>
JIGE_INLINE void with_rows(int rows, Body&& body) {
  switch (rows) {
    case 1:
      return body(Constant<1>());
    case 2:
      return body(Constant<2>());
    case 3:
      return body(Constant<3>());
    case 4:
      return body(Constant<4>());
    case 5:
      return body(Constant<5>());
    default:
      return;
  }
}

// Asks for a cache line that will be needed a tile later; it goes to the second cache, which holds
// a tile beside the present one.
JIGE_INLINE void fetch(const void* address) {
  _mm_prefetch(static_cast<const char*>(address), _MM_HINT_T1);
}

template <typename Element>
struct ScoresTile {
  const float* q = nullptr;
  int64_t q_stride = 0;
  const Element* k_columns[4] = {};  // [d][16] of every 16 keys
  const Element* next[4] = {};       // the same of the tile to fetch meanwhile, where there is one
  int32_t head_dim = 0;
  float* scores = nullptr;  // [row][64]
  const AttentionRange* ranges = nullptr;
};

template <int kRows, int kGroups, bool kFetch, typename Element>
inline void scores_block(const ScoresTile<Element>& tile, int row, int block) {
  constexpr int kVectors = kGroups * kVectorsOf16;
  F32 sums[kRows][kVectors];
  for (int r = 0; r < kRows; ++r) {
    for (int v = 0; v < kVectors; ++v) sums[r][v] = F32::zero();
  }
  const float* q = tile.q + row * tile.q_stride;
  const int64_t q_stride = tile.q_stride;
  const Element* k[kGroups];
  for (int g = 0; g < kGroups; ++g) k[g] = tile.k_columns[block + g];
  for (int c = 0; c < tile.head_dim; ++c) {
    F32 keys[kVectors];
    for (int v = 0; v < kVectors; ++v) {
      keys[v] = F32::load(k[v / kVectorsOf16] + c * 16 + v % kVectorsOf16 * F32::kLanes);
    }
    if constexpr (kFetch) {
      for (int g = 0; g < kGroups; ++g) fetch(tile.next[block + g] + c * 16);
    }
    for (int r = 0; r < kRows; ++r) {
      const F32 query = F32::broadcast(q[r * q_stride + c]);
      for (int v = 0; v < kVectors; ++v) sums[r][v] = fma(query, keys[v], sums[r][v]);
    }
  }
  float* scores = tile.scores + row * kAttentionTileKeys + block * 16;
  for (int r = 0; r < kRows; ++r) {
    for (int v = 0; v < kVectors; ++v) {
      sums[r][v].store(scores + r * kAttentionTileKeys + v * F32::kLanes);
    }
  }
}

// Scores of one group of rows in the blocks [begin, end) of 16 keys, as far as the group sees them.
template <int kRows, bool kFetch, typename Element>
inline void scores_blocks(const ScoresTile<Element>& tile, int row, int begin, int end,
                          const GroupRange& range) {
  if (range.empty()) return;
  constexpr int kGroups = lane_groups(kRows);
  begin = begin > range.first / 16 ? begin : range.first / 16;
  end = end < (range.last + 15) / 16 ? end : (range.last + 15) / 16;
  for (; begin + kGroups <= end; begin += kGroups) {
    scores_block<kRows, kGroups, kFetch>(tile, row, begin);
  }
  if constexpr (kGroups > 1) {
    for (; begin < end; ++begin) scores_block<kRows, 1, kFetch>(tile, row, begin);
  }
}

// Scores of all rows, at least in the blocks of 16 keys that they see. Keys are the outer loop, so
// that their block stays in the first cache. kFetch: the first rows fetch the next tile, too.
template <bool kFetch, typename Element>
inline void scores_tile(const ScoresTile<Element>& tile, int row_count) {
  constexpr int kStep = lane_groups(kGroupRows);
  const Groups groups = make_groups(tile.ranges, row_count);
  for (int block = 0; block < 4; block += kStep) {
    for (int i = 0; i < groups.whole; ++i) {
      if (kFetch && i == 0) {
        scores_blocks<kGroupRows, kFetch>(tile, 0, block, block + kStep, groups.range[i]);
      } else {
        scores_blocks<kGroupRows, false>(tile, i * kGroupRows, block, block + kStep,
                                         groups.range[i]);
      }
    }
  }
  with_rows(groups.last_rows, [&](auto rows) {
    if (kFetch && groups.whole == 0) {
      scores_blocks<rows.value, kFetch>(tile, 0, 0, 4, groups.range[0]);
    } else {
      scores_blocks<rows.value, false>(tile, groups.whole * kGroupRows, 0, 4,
                                       groups.range[groups.whole]);
    }
  });
}

template <typename Element>
struct ProductTile {
  float* out = nullptr;
  int64_t out_stride = 0;
  const float* alpha = nullptr;  // null: 1
  const float* a = nullptr;      // [r][64], or transposed [j][64]
  const Element* b[8] = {};      // rows of every 16 j
  const Element* next[4] = {};   // the same of the tile to fetch meanwhile, where there is one
  int64_t b_stride = 0;
  int32_t columns = 0;  // a multiple of 16
  const AttentionRange* ranges = nullptr;
};

// out[r] = α·out[r] + Σ_j a[r][j]·b[j] for j in [begin, end) and all rows and columns of a block.
struct ProductSpan {
  int begin;
  int end;
  const float* alpha;  // of the block's first row; null: 1
};

template <int kRows, int kGroups, bool kTransposed, bool kFetch, typename Element>
inline void product_block(const ProductTile<Element>& tile, int row, int column,
                          const ProductSpan& span) {
  constexpr int kVectors = kGroups * kVectorsOf16;
  constexpr int kRowStep = kTransposed ? 1 : kAttentionTileKeys;
  constexpr int kStep = kTransposed ? kAttentionTileKeys : 1;
  F32 sums[kRows][kVectors];
  float* out = tile.out + row * tile.out_stride + column;
  for (int r = 0; r < kRows; ++r) {
    const F32 alpha = F32::broadcast(span.alpha ? span.alpha[r] : 1.0f);
    for (int v = 0; v < kVectors; ++v) {
      sums[r][v] = F32::load(out + r * tile.out_stride + v * F32::kLanes) * alpha;
    }
  }
  const float* weights = tile.a + row * kRowStep + span.begin * kStep;
  for (int j = span.begin; j < span.end;) {
    const int end = (j / 16 + 1) * 16 < span.end ? (j / 16 + 1) * 16 : span.end;
    const int64_t offset = j % 16 * tile.b_stride + column;
    const Element* b = tile.b[j / 16] + offset;
    [[maybe_unused]] const Element* next = nullptr;
    if constexpr (kFetch) next = tile.next[j / 16] + offset;
    for (; j < end; ++j, b += tile.b_stride, weights += kStep) {
      if constexpr (kFetch) {
        for (int g = 0; g < kGroups; ++g) fetch(next + g * 16);
        next += tile.b_stride;
      }
      F32 values[kVectors];
      for (int v = 0; v < kVectors; ++v) values[v] = F32::load(b + v * F32::kLanes);
      for (int r = 0; r < kRows; ++r) {
        const F32 weight = F32::broadcast(weights[r * kRowStep]);
        for (int v = 0; v < kVectors; ++v) sums[r][v] = fma(weight, values[v], sums[r][v]);
      }
    }
  }
  for (int r = 0; r < kRows; ++r) {
    for (int v = 0; v < kVectors; ++v) {
      sums[r][v].store(out + r * tile.out_stride + v * F32::kLanes);
    }
  }
}

// Columns [begin, end) of one group of rows.
template <int kRows, bool kTransposed, bool kFetch, typename Element>
inline void product_columns(const ProductTile<Element>& tile, int row, AttentionRange columns,
                            const ProductSpan& span) {
  constexpr int kGroups = lane_groups(kRows);
  int column = columns.begin;
  for (; column + 16 * kGroups <= columns.end; column += 16 * kGroups) {
    product_block<kRows, kGroups, kTransposed, kFetch>(tile, row, column, span);
  }
  if constexpr (kGroups > 1) {
    for (; column < columns.end; column += 16) {
      product_block<kRows, 1, kTransposed, kFetch>(tile, row, column, span);
    }
  }
}

// The part of each row's range that falls into [begin, end), row by row.
template <bool kTransposed, typename Element>
inline void product_ragged(const ProductTile<Element>& tile, int row, int rows,
                           const ProductSpan& span) {
  for (int r = 0; r < rows; ++r) {
    const AttentionRange range = tile.ranges[row + r];
    product_columns<1, kTransposed, false>(
        tile, row + r, {0, tile.columns},
        {range.begin > span.begin ? range.begin : span.begin,
         range.end < span.end ? range.end : span.end, span.alpha ? span.alpha + r : nullptr});
  }
}

// The chain that all rows of a group share, in some columns.
template <int kRows, bool kTransposed, bool kFetch, typename Element>
JIGE_INLINE void product_group(const ProductTile<Element>& tile, int row, AttentionRange columns,
                               const GroupRange& range) {
  if (range.begin >= range.end) return;
  const bool scaled = range.first < range.begin;  // by product_ragged
  product_columns<kRows, kTransposed, kFetch>(
      tile, row, columns,
      {range.begin, range.end, tile.alpha && !scaled ? tile.alpha + row : nullptr});
}

// The chain of a group, between parts that only some of its rows see. Columns are the outer loop,
// so that those of b stay in the first cache. kFetch: the first rows fetch the next tile, too.
template <bool kTransposed, bool kFetch, typename Element>
inline void product_tile(const ProductTile<Element>& tile, int row_count) {
  const Groups groups = make_groups(tile.ranges, row_count);
  for (int i = 0; i < groups.count; ++i) {
    const GroupRange& range = groups.range[i];
    if (range.first >= range.begin) continue;
    product_ragged<kTransposed>(
        tile, i * kGroupRows, groups.rows_of(i),
        {range.first, range.begin, tile.alpha ? tile.alpha + i * kGroupRows : nullptr});
  }
  constexpr int kStep = 16 * lane_groups(kGroupRows);
  for (int column = 0; column < tile.columns; column += kStep) {
    const AttentionRange columns{column,
                                 column + kStep < tile.columns ? column + kStep : tile.columns};
    for (int i = 0; i < groups.whole; ++i) {
      if (kFetch && i == 0) {
        product_group<kGroupRows, kTransposed, kFetch>(tile, 0, columns, groups.range[0]);
      } else {
        product_group<kGroupRows, kTransposed, false>(tile, i * kGroupRows, columns,
                                                      groups.range[i]);
      }
    }
  }
  with_rows(groups.last_rows, [&](auto rows) {
    const AttentionRange columns{0, tile.columns};
    if (kFetch && groups.whole == 0) {
      product_group<rows.value, kTransposed, kFetch>(tile, 0, columns, groups.range[0]);
    } else {
      product_group<rows.value, kTransposed, false>(tile, groups.whole * kGroupRows, columns,
                                                    groups.range[groups.whole]);
    }
  });
  for (int i = 0; i < groups.count; ++i) {
    const GroupRange& range = groups.range[i];
    if (range.end >= range.last) continue;
    product_ragged<kTransposed>(tile, i * kGroupRows, groups.rows_of(i),
                                {range.end, range.last, nullptr});
  }
}

}  // namespace jige::cpu::JIGE_ISA_NS
