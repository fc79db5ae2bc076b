// ContextRelay: the relay of gradients (gradient_relay.h) where each rank has a part of every
// sequence: what goes from rank to rank is the sum so far behind each chunk of rows, in their order
// (model/context_split.h), so that it has the bits of one rank.
//
// For it a chunk is a micro-batch; chunk c of micro-batch m of a step has number 2 N m + c.
// Messages between two ranks must come in the order in which they are sent, so all ranks walk over
// all chunks in one order, and say of each, own or not, when it is done (done()). Threads: as
// GradientSync.
#pragma once

#include "model/context_split.h"
#include "train/gradient_relay.h"

namespace jige::train {

class ContextRelay final : public GradientRelay {
 public:
  using GradientRelay::GradientRelay;

  bool is_own(int64_t chunk) const override { return owner(chunk) == group_.rank(); }
  // W of the node and chunk is done, or is somebody else's: takes up the sum where the next chunk
  // is this rank's, and begins with the total behind the last one.
  void done(size_t node, int64_t chunk) {
    if (chunk + 1 == micro_batch_count_) {
      if (overlap_) release(node);
    } else if (owner(chunk) != group_.rank() && is_own(chunk + 1) && !bytes(node).empty()) {
      receive_sum(node, chunk);
    }
  }
  bool is_last(int64_t chunk) const { return chunk + 1 == micro_batch_count_; }

 private:
  int owner(int64_t chunk) const override { return model::ContextSplit::owner(chunk, size()); }
  bool takes_over(int64_t chunk) const override {
    return chunk > 0 && owner(chunk - 1) != owner(chunk);
  }
  bool leaves(int64_t chunk) const override {
    return !is_last(chunk) && owner(chunk + 1) != owner(chunk);
  }
  Status start_on_way(size_t node, int64_t chunk) override { return send_sum(node, chunk); }
  void begin_step() override {}
};

}  // namespace jige::train
