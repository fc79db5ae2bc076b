// Attention over the paged cache of a GPU: [block][G]{ keys [16][d]; values [16][d] }, f32 or bf16,
// or in 8 bits with scales behind: [block][G]{ keys; values; key scales [16]; value scales [16] },
// int8 and bf16 as kernels/cpu/kv_cache.h rounds them.
//
// Rows of one sequence and key/value head are packed: packed row i is query head i % (H/G) of row
// i / (H/G); all of them read the same keys. A block of threads takes some packed rows, and all
// keys that they see or a split of these: keys from a multiple of a fixed number on. Sequences of
// few rows, as decodes, have splits of 256 keys; those of some rows have few splits, for the sake
// of short prompts behind long contexts; all others have none. Where there are several, partial
// results are merged: those of few rows on tensor cores by the last of their blocks that is done,
// else in a second launch, in the same order. So what a row gives depends on its own query and keys
// and on how many rows its sequence has, but not on its neighbours.
//
// bf16 caches and queries with heads of up to 256 go through tensor cores, where weights of values
// are rounded to bf16, as do latents of 512 or 256 columns with keys of 576 or 288; all else is in
// f32. Of a cache in 8 bits sequences of few rows are in f32,
// and tiles go through tensor cores as said.
// Threads: asynchronous on the stream.
#pragma once

#include <cstdint>

#include "kernels/cpu/types.h"
#include "kernels/cuda/launch.h"

namespace jige::cuda {

constexpr int32_t kCachedFewRows = 8;
constexpr int32_t kCachedFewKeys = 256;  // of a split
constexpr int32_t kCachedSomeRows = 128;
constexpr int32_t kCachedSomeKeys = 1024;  // of a split, or a multiple
constexpr int32_t kCachedSomeSplits = 8;   // at most

struct alignas(16) CachedSequence {
  int32_t row_begin, row_count, context_count;
  int32_t blocks_begin;              // of its cache blocks in CachedAttention::blocks
  int32_t split_begin, split_count;  // 0 if there are no splits
  int32_t split_keys;
  int32_t partials_begin;  // rows of partial results before its own; used if > 1 split
};

// Packed rows of a sequence from `row_begin` on and a split, or -1 for all keys. Of merges, a row.
// Nothing if `sequence` is -1.
struct alignas(16) CachedItem {
  int32_t sequence, row_begin, split, unused;
};

// What is done first with rows of q, and of keys and values that are not in the cache yet: heads
// turn as ops/rope.h says, by the position of their row, and keys and values are appended. By
// attention_cached() where cached_appends() says so.
struct CachedAppend {
  cpu::ConstRows k, v;    // [rows, G · d] bf16, before they turn; null: they are in the cache
  const float* q_angles;  // [positions, rotary_dim], cosines before sines; null: q does not turn
  const float* k_angles;
  int64_t angle_stride;
  int32_t rotary_dim;
};

// The work of a step, on the device.
struct CachedTables {
  const CachedSequence* sequences;
  const int32_t* blocks;
  const CachedItem* few;  // of sequences of few rows: splits, of all rows
  const CachedItem* tiles;
  const CachedItem* merges;
  int32_t few_items, tile_items, merge_items;
  int32_t few_rows_max;  // rows of a sequence among the former
  int64_t partial_rows;
};

struct CachedAttention : CachedTables {
  cpu::Rows dst;     // [rows, H · d] f32 or bf16
  cpu::ConstRows q;  // the same
  void* cache;       // written where rows are appended
  cpu::ElementType cache_type;
  bool in_8_bits;  // whatever cache_type is
  int32_t head_count, kv_head_count, head_dim;
  int32_t value_columns;  // of a head, that are wanted in dst: the first ones
  bool values_in_keys;    // the values are these columns of keys, besides
  int32_t window;         // 0: none
  float scale, cap;
  const float* sinks;  // [H] or null
  CachedAppend append;

  int32_t tile_rows;
  float* partials;  // [partial_rows][H][d], then maxima and sums [partial_rows][H][2]
  // Blocks that are done, of splits that are merged where they are made: zeros before and after.
  int32_t* counters;

  // Set by attention_cached().
  int32_t heads;           // H / G
  uint32_t heads_inverse;  // ⌈2^32 / heads⌉, or 0 for 1
};

// Packed rows of a tile of a batch of `rows`.
int32_t cached_tile_rows(const LaunchStream& stream, const CachedAttention& args, int64_t rows);
inline int64_t cached_partial_bytes(const CachedAttention& args) {
  constexpr int64_t kStatistics = 2;
  return args.partial_rows * args.head_count * (args.head_dim + kStatistics) *
         static_cast<int64_t>(sizeof(float));
}
// Whether splits of few rows are merged where they are made: their rows have no merges in the
// tables then, and there are counters.
bool cached_merges_few(const CachedAttention& args);
int64_t cached_counter_bytes(const CachedAttention& args, int64_t sequence_count);
void attention_cached(const LaunchStream& stream, const CachedAttention& args);

// Whether `append` may be given, for sequences of few rows alone of which none reads what another
// appends.
bool cached_appends(const CachedAttention& args);

}  // namespace jige::cuda
