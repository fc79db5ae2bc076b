// GradientRelay: the sum of a step's gradients micro-batch by micro-batch, with the bits of one
// rank.
//
// Who has micro-batch i takes over each node's sum from who has i - 1, lets W add to it, and passes
// it on; who has the last one broadcasts what it has. Ranks are in the same pass at the same time,
// each a node behind the one before, so the relay costs a step the time of its longest node (the
// head, with its whole pass) for each rank, and not that of a pass. On every link moves the model's
// gradient once for each micro-batch of the rank behind it, and once for the broadcast.
//
// With shares the last one is the holder, and sends each rank its share instead.
//
// Memory: none besides the carrier's. The sum that comes back for the next round of micro-batches
// may be received as soon as the one before is on its way: it depends on it.
// Threads: as GradientSync.
#pragma once

#include <vector>

#include "train/gradient_sync.h"

namespace jige::train {

class GradientRelay : public GradientSync {
 public:
  GradientRelay(const RankOptions& options, GradientCarrier& carrier,
                const model::ModelWeights& weights, const OptimizerShares* shares);

  bool starts(int64_t micro_batch) const override { return micro_batch == 0; }
  int holder() const override;

 protected:
  // Whose a micro-batch is.
  virtual int owner(int64_t micro_batch) const { return rank_at(micro_batch % size()); }
  // To the rank that has the micro-batch behind this one, or from the one that has it.
  Status send_sum(size_t node, int64_t micro_batch);
  void receive_sum(size_t node, int64_t micro_batch);
  bool takes_over(int64_t micro_batch) const override { return micro_batch > 0; }
  Status await_sum(size_t node) override { return received_[node].wait(); }
  bool leaves(int64_t) const override { return true; }
  Status start_on_way(size_t node, int64_t micro_batch) override;
  // Takes up the sums for the first own micro-batch, all nodes at once, when the step begins.
  void begin_step() override;

 private:
  ElementRange arriving(size_t node) const override;
  Status wait_total(size_t node) override;
  int last_rank() const { return owner(micro_batch_count_ - 1); }
  // The holder sends shares, the others receive theirs.
  void start_shares(size_t node);
  void start_total(size_t node) override;
  uint64_t tag(size_t node, int64_t micro_batch) const;

  std::vector<comm::Pending> received_;  // by node
  std::vector<comm::Pending> sent_;
  const OptimizerShares* shares_;
  std::vector<std::vector<comm::Pending>> shares_sent_;  // by node, on the holder
};

}  // namespace jige::train
