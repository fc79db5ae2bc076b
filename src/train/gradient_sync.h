// GradientSync: how the gradients of a step come together while its backward pass still runs.
//
// The engine (rank_engine.h) tells it where the pass stands; nodes come from the head down. For
// every micro-batch of its own, in ascending order:
//
//   sync.begin(micro_batches);
//   per micro-batch, per node: X; JIGE_DO(sync.before(node, i)); W; JIGE_DO(sync.after(node, i));
//   sync.finish();
//   per node: JIGE_DO(sync.wait_total(node));   // or wait_for() a part of total(node)
//
// With shares (optimizer_shares.h) a rank may get the sum of its part of each node only; then one
// rank, the holder, has had all of it.
// Micro-batch i of a step is that of the rank at place i modulo the number of ranks, places being
// counted along the plan's first ring. Between begin() and the end of total() the gradients' memory
// belongs to the sync, but between before() and after() of a node.
// Threads: one thread at a time; all ranks call the same.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "comm/async_group.h"
#include "model/weights.h"
#include "train/optimizer_shares.h"
#include "train/rank_options.h"

namespace jige::train {

class GradientSync {
 public:
  // `shares`, which must outlive it, may be null: all get all.
  static std::unique_ptr<GradientSync> make(const RankOptions& options,
                                            const model::ModelWeights& weights,
                                            const OptimizerShares* shares);
  virtual ~GradientSync() = default;

  // Whether a micro-batch is this rank's.
  bool is_own(int64_t micro_batch) const { return micro_batch % size() == place_; }
  // Whether its gradients begin from nothing here; else they are added to what is in memory.
  virtual bool starts(int64_t micro_batch) const = 0;

  // Begins a step of so many micro-batches. REQUIRES: where none that starts() is this rank's, the
  // gradients are zero.
  void begin(int64_t micro_batch_count);
  // Waits until W of a node may run.
  virtual Status before(size_t node, int64_t micro_batch) = 0;
  // W of the node is done, in memory too.
  virtual Status after(size_t node, int64_t micro_batch) = 0;
  // All own micro-batches are done.
  void finish();
  // The sum over all micro-batches, in the node's gradient memory. REQUIRES: finish() was called,
  // and there is no holder.
  const comm::Pending& total(size_t node) const { return totals_[node]; }
  // Returns when this rank has what it gets of a node's sum, and the node's memory may change.
  // REQUIRES: finish() was called.
  virtual Status wait_total(size_t node) { return totals_[node].wait(); }
  // The rank that has the whole sums as soon as its own micro-batches are done, while the others
  // get their shares from it; -1: all get all.
  virtual int holder() const { return -1; }

  // By this rank, since the beginning.
  int64_t sent_bytes() const { return sent_bytes_; }

 protected:
  GradientSync(const RankOptions& options, const model::ModelWeights& weights);
  int size() const { return group_.size(); }
  int rank_at(int64_t place) const { return ring_.at(place); }
  std::span<std::byte> bytes(size_t node) const;
  size_t node_count() const { return totals_.size(); }
  // What begins with a step.
  virtual void begin_step() {}
  // What becomes of a node when its part of this rank is done: starts totals_[node].
  virtual void start_total(size_t node) = 0;
  void release(size_t node);

  comm::AsyncGroup& group_;
  const model::ModelWeights& weights_;
  const comm::Ring ring_;
  const int64_t place_;
  const bool overlap_;
  int64_t micro_batch_count_ = 0;
  std::vector<comm::Pending> totals_;  // by node
  int64_t sent_bytes_ = 0;

 private:
  size_t unreleased_ = 0;  // nodes below this one are not released yet
};

}  // namespace jige::train
