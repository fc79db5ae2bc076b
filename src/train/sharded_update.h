// ShardedUpdate: the update of a step whose optimizer state is divided among ranks: each updates
// its part, and gives it to all.
//
// The parts meet in gradient memory, a node's line of numbers (optimizer_shares.h) at a time: each
// rank writes its new values to their place in it and broadcasts them. So packed values, which have
// no other memory (WeightsOptions::values_in_gradients), are whole from here to the next gradient,
// and the others are copied from there. Then packed forms are renewed. Parts of GPUs go by way of
// the host's memory (gradient_carrier.h).
// Invariants: (1) values, packed forms and moments have the bits of Optimizer::apply() on one rank.
// (2) Behind a step that changed nothing values are whole, too. Memory: none besides.
// On every link moves the part of all parameters that the rank behind it does not hold.
// Threads: one thread at a time; all ranks call the same.
#pragma once

#include <vector>

#include "comm/async_group.h"
#include "model/weights.h"
#include "train/gradient_carrier.h"
#include "train/optimizer.h"

namespace jige::train {

class ShardedUpdate {
 public:
  // All must outlive it. REQUIRES: an optimizer with shares for the group's ranks.
  ShardedUpdate(comm::AsyncGroup& group, GradientCarrier& carrier, model::ModelWeights& weights,
                Optimizer& optimizer);

  // Sets the masters that are apart from whole values. Waits.
  void take_masters(Stream& stream);
  // Updates where the report says so, and makes values whole. REQUIRES: gradients of the own part
  // are there, and nothing else reads or writes gradient memory. Fails as the group.
  Status run(Stream& stream, const OptimizerReport& report, double learning_rate);

  // By this rank, since the beginning.
  int64_t sent_bytes() const { return sent_bytes_; }
  // In which the last run() had nothing to do but wait for others.
  double wait_s() const { return wait_s_; }

 private:
  // The own part of a node: updated, written to the place where all meet, and then gathered.
  Status update_node(Stream& stream, size_t node, const OptimizerReport& report,
                     double learning_rate);
  void start_gathering(size_t node);
  // Copies what has memory of its own, and packs.
  void take_values(Stream& stream, size_t node);

  comm::AsyncGroup& group_;
  GradientCarrier& carrier_;
  model::ModelWeights& weights_;
  Optimizer& optimizer_;
  std::vector<std::vector<size_t>> params_;            // by node
  std::vector<std::vector<comm::Pending>> gathering_;  // by node
  int64_t sent_bytes_ = 0;
  double wait_s_ = 0;
};

}  // namespace jige::train
