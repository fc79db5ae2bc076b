// Attention over the paged cache of a GPU: [block][G]{ keys [16][d]; values [16][d] }, f32 or bf16.
//
// Rows of one sequence and key/value head are packed: packed row i is query head i % (H/G) of row
// i / (H/G); all of them read the same keys. Sequences of few rows, as decodes, are cut into splits
// of 256 keys counted from the sequence's start, a block of threads each; where there are several,
// partial results are merged in a second launch. Sequences of more rows are cut into tiles of
// packed rows, each of which goes over all keys that it sees. So what a row gives depends on its
// own query and keys and on which of the two its sequence is, but not on its neighbours.
//
// bf16 caches and queries with heads of up to 256 go through tensor cores, where weights of values
// are rounded to bf16; all else is in f32. Threads: asynchronous on the stream.
#pragma once

#include <cstdint>

#include "kernels/cpu/types.h"
#include "kernels/cuda/launch.h"

namespace jige::cuda {

constexpr int32_t kCachedFewRows = 8;  // sequences of up to so many rows are cut into splits
constexpr int32_t kCachedSplitKeys = 256;

struct CachedSequence {
  int32_t row_begin, row_count, context_count;
  int32_t blocks_begin;              // of its cache blocks in CachedAttention::blocks
  int32_t split_begin, split_count;  // 0 unless it has few rows
  int32_t partials_begin;            // rows of partial results before its own; used if > 1 split
  int32_t unused;
};

// Of a sequence: a split, a tile of packed rows, or a row to merge. Nothing if `sequence` is -1.
struct CachedItem {
  int32_t sequence, index;
};

struct CachedAttention {
  cpu::Rows dst;     // [rows, H · d] f32 or bf16
  cpu::ConstRows q;  // the same
  const void* cache;
  cpu::ElementType cache_type;
  int32_t head_count, kv_head_count, head_dim;
  int32_t window;  // 0: none
  float scale, cap;
  const float* sinks;  // [H] or null

  // On the device.
  const CachedSequence* sequences;
  const int32_t* blocks;
  const CachedItem* splits;
  const CachedItem* tiles;
  const CachedItem* merges;
  int32_t split_items, tile_items, merge_items;
  int32_t few_rows_max;  // of the sequences that are cut into splits
  float* partials;       // [partial_rows][H][d], then maxima and sums [partial_rows][H][2]
  int64_t partial_rows;
};

// Packed rows of a tile.
int32_t cached_tile_rows(const CachedAttention& args);
inline int64_t cached_partial_bytes(const CachedAttention& args) {
  constexpr int64_t kStatistics = 2;
  return args.partial_rows * args.head_count * (args.head_dim + kStatistics) *
         static_cast<int64_t>(sizeof(float));
}
void attention_cached(const LaunchStream& stream, const CachedAttention& args);

}  // namespace jige::cuda
