// Attention over flat ragged sequences, forward and backward (ops/attention.h says what it is).
//
// bf16 with heads of 64, 80, 96, 128, 192 or 256 (and of 32, where queries see what is behind them)
// runs on tensor cores, unless tables by distance are multiplied, in tiles of queries and keys
// aligned to the start of a sequence: scores in f32, weights and gradients of scores rounded to
// bf16 for the products, sums in f32 over keys (or queries, heads ascending) in steps of 16. All
// else runs a warp for each row, in f32. A row's bits depend on its own sequence only.
//
// A tile of keys that a row sees in part must hold numbers: a weight of zero times a value that is
// not one is not zero on tensor cores. Threads: asynchronous on the stream.
#pragma once

#include "kernels/cpu/attention_sinks.h"
#include "kernels/cpu/types.h"
#include "kernels/cuda/launch.h"

namespace jige::cuda {

// Rows from `begin` on of a sequence; how many is the kernel's.
struct AttentionTile {
  int32_t row = 0;     // the sequence's first
  int32_t length = 0;  // of the sequence
  int32_t begin = 0;
};

// On the device, costly ones first.
struct AttentionTiles {
  const AttentionTile* data;
  int64_t count;
  int32_t rows;  // of a tile
};

struct FlatAttention {
  cpu::ConstRows q, k, v;
  int32_t head_count;
  int32_t kv_head_count;
  int32_t head_dim;
  int32_t window;  // 0: none
  float scale;
  float cap;           // 0: none
  const float* sinks;  // or null
};

// What scores get besides, by key - query (ops/attention.h): numbers, products with rows of tables,
// or neither.
struct AttentionDistances {
  const float* scores = nullptr;  // of head h from h · stride on
  int64_t stride = 0;
  const int32_t* row_of = nullptr;
  cpu::ConstRows for_queries{};  // either may have no data
  cpu::ConstRows for_keys{};
};

struct FlatAttentionForward {
  FlatAttention attention;
  cpu::Rows dst;
  float* lse;  // or null
  int64_t lse_stride;
  int64_t rows;
  AttentionTiles tiles;            // of attention_forward_rows()
  bool both_sides = false;         // queries see keys behind them, too
  AttentionDistances distances{};  // REQUIRES: both_sides, and no cap, where there are any
};

struct FlatAttentionBackward {
  FlatAttention attention;
  cpu::ConstRows dst, grad_dst;
  const float* lse;
  int64_t lse_stride;
  cpu::Rows grad_q, grad_k, grad_v;
  int64_t rows;
  float* scratch;              // attention_backward_floats()
  AttentionTiles query_tiles;  // of attention_backward_rows()
  AttentionTiles key_tiles;
};

struct AttentionBackwardRows {
  int32_t queries, keys;
};

// Rows of a tile for these arguments, whose tiles need not be there yet. Tiles are smaller where
// there are few rows, or little shared memory; bits are the same.
int32_t attention_forward_rows(const LaunchStream& stream, const FlatAttentionForward& args);
AttentionBackwardRows attention_backward_rows(const LaunchStream& stream,
                                              const FlatAttentionBackward& args);
constexpr int64_t attention_backward_floats(int64_t rows, int64_t head_count) {
  return 2 * rows * head_count;
}

void attention_forward(const LaunchStream& stream, const FlatAttentionForward& args);
void attention_backward(const LaunchStream& stream, const FlatAttentionBackward& args);

// As kernels/cpu/attention_sinks.h says.
void attention_sink_slopes(const LaunchStream& stream, const cpu::SinkSlopesArgs& args,
                           int64_t rows);

}  // namespace jige::cuda
