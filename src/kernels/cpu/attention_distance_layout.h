// How forward attention lays out what it makes of rows by distance; shared by the kernels, which
// use it, and by attention.cc, which states its size.
//
// Of a tile of R query rows, rounded up to R' a multiple of 16, and 64 keys: distances are numbered
// x = (key − first key) − (row − first row) + R' − 1, from 0 to R' + 62, and come in blocks of 16.
//   for_queries   blocks as keys of a tile are kept: [block]{ [d][16] } in f32, or right tiles
//   for_keys      [x][columns]: rows as queries are kept
//   by_query      what sixteen rows have of 80 distances: row r of them, key j at [j − r + 15]; in
//                 f32 64 of each row and behind those of all rows the last 16
//   by_key        [x][keys]: row i, key j at [j − i + R' − 1][j]
//
// Threads: values. Every function here is inlined: no copy is shared between instruction sets.
#pragma once

#include "kernels/cpu/attention_layout.h"

namespace jige::cpu {

#define JIGE_LAYOUT static inline __attribute__((always_inline))

// Floats from one row to the next of results on tiles and in pairs: odd numbers of cache lines.
inline constexpr int kAttentionByQueryStride = 7 * 16;
inline constexpr int kAttentionByKeyStride = kAttentionTileKeys + 16;

// Blocks of 16 distances of a tile.
JIGE_LAYOUT int32_t attention_distance_blocks(int32_t row_count) {
  return (row_count + 15) / 16 + kAttentionTileKeys / 16;
}

template <typename Element>
struct AttentionDistanceScratch {
  Element* for_queries;
  Element* for_keys;
  Element* block;  // sixteen rows
  float* by_query;
  float* by_key;
  AttentionRange* ranges;  // of rows
  int64_t bytes;
};

// `row` elements from one row of a table to the next: attention_row_floats(), or the depth of
// tiles.
template <typename Element>
JIGE_LAYOUT AttentionDistanceScratch<Element> attention_distance_scratch(void* base, int64_t row,
                                                                         int32_t row_count) {
  const int64_t distances = int64_t{attention_distance_blocks(row_count)} * 16;
  AttentionPieces pieces{static_cast<char*>(base)};
  AttentionDistanceScratch<Element> s{};
  s.for_queries = pieces.take<Element>(distances * row);
  s.for_keys = pieces.take<Element>(distances * row);
  s.block = pieces.take<Element>(16 * row);
  s.by_query = pieces.take<float>(16 * 2 * kAttentionTileKeys);
  s.by_key = pieces.take<float>(distances * kAttentionByKeyStride);
  s.ranges = pieces.take<AttentionRange>(kAttentionRowsMax);
  s.bytes = pieces.used;
  return s;
}

#undef JIGE_LAYOUT

}  // namespace jige::cpu
