// What the attention ops share: the checks of their arguments, and how the query rows of all
// sequences become pieces of work for the threads.
//
// Results are defined per row (kernels/cpu/attention.h), so a schedule may cut and order as it
// likes. Rows of a sequence and key/value head are cut into tiles of up to 96, or 256 where the
// kernels run on matrix tiles or in pairs and pack the keys for every tile of rows. A tile that is
// a large part of the whole, as the one row of a decode over a long context, is cut further between
// its splits of 512 keys, whose results are merged in a second loop.
//
// Memory beside the scratch of one tile per thread: the partial results of cut tiles. Fewer than
// 4 · threads tiles are cut, so these take less than
//   4 · threads · splits · rows · (d + 34) floats, splits = ⌈context / 512⌉, rows <= 256.
// Threads: values.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <vector>

#include "kernels/cpu/attention.h"
#include "ops/attention.h"
#include "tensor/cpu_device.h"

namespace jige::ops {

// Ends the process unless the shape is one the kernels take.
void check_attention_shape(const AttentionShape& shape);
// Ends the process unless `view` is a [rows, columns] matrix of f32 or bf16.
void check_attention_matrix(const TensorView& view, const char* name, int64_t rows,
                            int64_t columns);
// Ends the process unless the sequences lie in [0, rows) and their rows times heads can be counted.
void check_attention_sequences(const std::vector<SequenceSpan>& sequences, int64_t rows,
                               int64_t head_count);
// Ends the process unless a sequence's blocks from that of `first_position` on are in
// [0, block_count).
void check_attention_blocks(const SequenceSpan& sequence, int64_t first_position,
                            int64_t block_count);
// The same of the blocks that attention reads: what lies before the window of the first row may be
// gone.
void check_seen_blocks(const SequenceSpan& sequence, const AttentionShape& shape,
                       const KvCacheView& cache);
// Ends the process unless the cache is one the kernels take.
void check_kv_cache(const KvCacheView& cache);

// The kernels' view of a matrix from (row, column) on.
cpu::AttentionSource attention_source(const TensorView& view, int64_t row, int64_t column);
cpu::AttentionTarget attention_target(const TensorView& view, int64_t row, int64_t column);
// The window as kernels take it: 0 when there is none or none that matters.
int32_t attention_window(const AttentionShape& shape);
// How many keys behind its own a query of the sequence sees, at most, and of how many.
struct AttentionAhead {
  int32_t ahead = 0;
  int32_t key_count = INT32_MAX;

  // The end of the keys that the query at a position sees.
  int64_t end_key(int64_t position) const {
    return std::min<int64_t>(position + 1 + ahead, key_count);
  }
};
AttentionAhead attention_ahead(const AttentionShape& shape, const SequenceSpan& sequence);
// Ends the process where queries see keys behind them.
void check_looks_back(const AttentionShape& shape);
void check_looks_back(const std::vector<SequenceSpan>& sequences);

// What backward kernels have of a sequence whose matrices begin at `row`, for the query heads of
// one key/value head; gradients go to rows from `grad_row` on. Length, ranges and scratch are the
// caller's to set.
template <typename Backward>
cpu::AttentionGradients attention_gradients(const Backward& args, int64_t kv_head, int64_t row,
                                            int64_t grad_row) {
  const AttentionShape& shape = args.shape;
  const int64_t heads = shape.head_count / shape.kv_head_count;
  const int64_t q_column = kv_head * heads * shape.head_dim;
  const int64_t kv_column = kv_head * shape.head_dim;
  cpu::AttentionGradients gradients;
  gradients.q = attention_source(args.q, row, q_column);
  gradients.k = attention_source(args.k, row, kv_column);
  gradients.v = attention_source(args.v, row, kv_column);
  gradients.dst = attention_source(args.dst, row, q_column);
  gradients.grad_dst = attention_source(args.grad_dst, row, q_column);
  gradients.lse_stride = args.lse.row_stride;
  gradients.lse = args.lse.template as<float>() + row * args.lse.row_stride + kv_head * heads;
  gradients.grad_q = attention_target(args.grad_q, grad_row, q_column);
  gradients.grad_k = attention_target(args.grad_k, grad_row, kv_column);
  gradients.grad_v = attention_target(args.grad_v, grad_row, kv_column);
  gradients.head_count = static_cast<int32_t>(heads);
  gradients.head_dim = static_cast<int32_t>(shape.head_dim);
  gradients.window = attention_window(shape);
  gradients.scale = static_cast<float>(shape.scale);
  gradients.cap = static_cast<float>(shape.cap);
  return gradients;
}

// A tile of query rows, over all its splits or some of them.
struct AttentionWork {
  int32_t sequence = 0;
  int32_t kv_head = 0;
  int32_t row_begin = 0;
  int32_t row_count = 0;
  int32_t split_begin = 0;
  int32_t split_end = 0;
  int64_t partial_offset = -1;  // floats into the partial results; -1: not cut
  double cost = 0;              // pairs of a query row and a key
};

struct AttentionSchedule {
  std::vector<AttentionWork> attend;  // costly ones first
  std::vector<AttentionWork> merge;   // the cut tiles as a whole
  int64_t partial_floats = 0;
};

struct AttentionMachine {
  int thread_count = 1;
  bool in_tiles = false;  // cpu::attention_products: no chains
};
AttentionSchedule make_attention_schedule(const std::vector<SequenceSpan>& sequences,
                                          const AttentionShape& shape,
                                          const AttentionMachine& machine);

// Runs body(index, worker) for every index in [0, count), the lower ones first.
template <typename Body>
void run_attention_work(ThreadTeam& team, int64_t count, Body&& body) {
  if (count == 0) return;
  std::atomic<int64_t> next{0};
  team.parallel_for(team.size(), 1, [&](int64_t, int64_t, int worker) {
    for (int64_t i = next.fetch_add(1); i < count; i = next.fetch_add(1)) body(i, worker);
  });
}

}  // namespace jige::ops
