// ContextPasses: the passes of a micro-batch each of whose sequences the ranks have together,
// zig-zag (model/context_split.h). All but attention is a matter of a rank's own rows; attention
// gets those of others layer by layer (group_exchange.h).
//
// The bits are those of one rank with the same micro-batches: a row's results do not depend on who
// has it, and sums over rows go through the chunks in their order (context_relay.h). For that, W of
// a chunk waits for the chunks before it. Of each rank's two chunks one is even and one odd; a slot
// has X of a node, then W of even chunks, then of odd ones, and W of chunk c is c / 2 slots behind
// X:
//
//   slot    0           1               2               3             two ranks, nodes 2 to 0,
//   rank 0  X2 W2a      X1 W1a W2d      X0 W0a W1d         W0d        chunks a b c d
//   rank 1  X2     W2b  X1 W2c W1b      X0 W1c W0b         W0c
//
// So all have work in every slot, and no more than N nodes wait for W. The head is one task with
// its passes, and goes from chunk to chunk: while one rank is at it the others wait. Threads: one
// thread at a time; all ranks call the same.
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
  static int64_t lag(int64_t chunk) { return chunk / 2; }
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
