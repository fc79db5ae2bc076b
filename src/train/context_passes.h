// ContextPasses: the passes of a micro-batch each of whose sequences the ranks have together,
// zig-zag (model/context_split.h). All but attention is a matter of a rank's own rows; attention
// gets those of others layer by layer (group_exchange.h).
//
// With f32 compute the bits are those of one rank: a row's results do not depend on who has it, and
// sums over rows go through the chunks in their order (context_relay.h). For that, W of a node
// waits for the chunks before it, and comes some nodes later than X:
//
//   slot            0         1         2         3        4     two ranks, nodes 3 to 0
//   rank 0   X3 W3a    X2 W2a    X1 W1a W3d  X0 W0a W2d   W1d …  chunks a b c d; rank 0 has a and d
//   rank 1   X3        X2 W3bc   X1 W2bc     X0 W1bc      W0bc …
//
// W of chunk c is lag(c) slots behind X. The head is one task with its passes, and goes from chunk
// to chunk: while one rank is at it the others wait.
// Threads: one thread at a time; all ranks call the same.
#pragma once

#include <cstdint>

#include "base/exact_sum.h"
#include "base/result.h"
#include "comm/async_group.h"
#include "model/weights.h"
#include "train/context_relay.h"
#include "train/executor.h"
#include "train/group_exchange.h"

namespace jige::train {

class ContextPasses {
 public:
  // All must outlive the passes.
  ContextPasses(comm::AsyncGroup& group, Executor& executor, model::ModelWeights& weights,
                ContextRelay& relay);

  int64_t chunk_count(int64_t micro_batch_count) const {
    return 2 * int64_t{group_->size()} * micro_batch_count;
  }
  // Takes this rank's rows of a micro-batch, which may be none, and runs F of them but for the
  // head; with_head: for losses alone.
  Status forward(Stream& stream, const HostBatch& whole, const BatchTerms& terms,
                 bool with_head = false);
  // The head's pass, X and W of the micro-batch with this number in its step.
  Status backward(Stream& stream, int64_t micro_batch);
  // Adds the losses of this rank's rows.
  void add_losses(Stream& stream, ExactSum& sum);
  // Whether this rank has any.
  bool any_rows() const { return any_rows_; }

  // Since the beginning, of rows and gradients: time in which nothing was computed.
  double wait_s() const { return wait_s_ + exchange_.wait_s(); }
  int64_t sent_bytes() const { return exchange_.sent_bytes(); }

 private:
  // How many slots W of a chunk comes behind X.
  int64_t lag(int64_t chunk) const { return chunk < group_->size() ? chunk : chunk - 1; }
  // W of a node and chunk where it is this rank's, of the head all of its pass.
  Status run_chunk(Stream& stream, int32_t node, int64_t micro_batch, int64_t chunk);

  comm::AsyncGroup* group_;
  Executor* executor_;
  model::ModelWeights* weights_;
  ContextRelay* relay_;
  GroupExchange exchange_;
  HostBatch own_;
  bool any_rows_ = false;
  bool stores_ = true;  // the first chunk of a step stores gradients, as it has rows
  double wait_s_ = 0;
};

}  // namespace jige::train
