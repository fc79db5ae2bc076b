// GradientSync: how the gradients of a step come together while its backward pass still runs.
//
// The engine (rank_engine.h) tells it where the pass stands; nodes come from the head down. For
// every micro-batch of its own, in ascending order:
//
//   JIGE_DO(sync.begin(micro_batches));
//   per micro-batch, per node: X; JIGE_DO(sync.before(stream, node, i)); W;
//                              JIGE_DO(sync.after(stream, node, i));
//   JIGE_DO(sync.finish(stream));
//   per node: JIGE_DO(sync.await_total(stream, node));   // or a part of it
//
// With shares (optimizer_shares.h) a rank may get the sum of its part of each node only; then one
// rank, the holder, has had all of it. What ranks exchange is in the host's memory; the carrier
// brings it there and back where a GPU computes (gradient_carrier.h).
// Micro-batch i of a step is that of the rank at place i modulo the number of ranks, places being
// counted along the plan's first ring. Between begin() and the end of total() the gradients' memory
// belongs to the sync, but between before() and after() of a node.
// Threads: one thread at a time; all ranks call the same. What starts when a gradient has come to
// the host's memory may do so on a thread of the carrier's, which alone talks to the group then.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "comm/async_group.h"
#include "model/weights.h"
#include "train/gradient_carrier.h"
#include "train/optimizer_shares.h"
#include "train/rank_options.h"

namespace jige::train {

class GradientSync {
 public:
  // `shares` may be null: all get all. It and the carrier must outlive the sync.
  static std::unique_ptr<GradientSync> make(const RankOptions& options, GradientCarrier& carrier,
                                            const model::ModelWeights& weights,
                                            const OptimizerShares* shares);
  virtual ~GradientSync() = default;

  // Whether a micro-batch is this rank's.
  virtual bool is_own(int64_t micro_batch) const { return micro_batch % size() == place_; }
  // Whether its gradients begin from nothing here; else they are added to what is in memory.
  virtual bool starts(int64_t micro_batch) const = 0;

  // Begins a step of so many micro-batches. REQUIRES: where none that starts() is this rank's, the
  // gradients are zero.
  Status begin(int64_t micro_batch_count);
  // Waits until W of a node may be put on the stream.
  Status before(Stream& stream, size_t node, int64_t micro_batch);
  // W of the node was put there.
  Status after(Stream& stream, size_t node, int64_t micro_batch);
  // All own micro-batches were.
  Status finish(Stream& stream);
  // Returns when what is put on the stream finds the sum over all micro-batches in these elements
  // of the node's gradient memory. REQUIRES: finish() was called, and there is no holder.
  Status await_total(Stream& stream, size_t node, const ElementRange& elements) {
    return carrier_.await_part(stream, node, elements);
  }
  // Returns when it finds what this rank gets of a node's sum, and the node's memory may change.
  // REQUIRES: finish() was called.
  Status await_total(Stream& stream, size_t node) { return carrier_.await_all(stream, node); }
  // The rank that has the whole sums as soon as its own micro-batches are done, while the others
  // get their shares from it; -1: all get all.
  virtual int holder() const { return -1; }

  // By this rank, since the beginning.
  int64_t sent_bytes() const { return sent_bytes_; }

 protected:
  GradientSync(const RankOptions& options, GradientCarrier& carrier,
               const model::ModelWeights& weights);
  int size() const { return group_.size(); }
  int rank_at(int64_t place) const { return ring_.at(place); }
  // In which ranks exchange a node's gradients.
  std::span<std::byte> bytes(size_t node) const { return carrier_.memory(node); }
  ElementRange all_of(size_t node) const {
    return {0, static_cast<int64_t>(bytes(node).size() / 4)};
  }
  size_t node_count() const { return totals_.size(); }
  // What begins with a step.
  virtual void begin_step() {}
  // Whether W of a micro-batch adds to a sum of other ranks, and how to wait for that.
  virtual bool takes_over(int64_t /*micro_batch*/) const { return false; }
  virtual Status await_sum(size_t /*node*/) { return {}; }
  // Whether the gradients behind W of an own micro-batch leave this rank, and what they start when
  // they are in bytes().
  virtual bool leaves(int64_t micro_batch) const = 0;
  virtual Status start_on_way(size_t node, int64_t micro_batch) = 0;
  // What becomes of a node when its part of this rank is done: starts totals_[node].
  virtual void start_total(size_t node) = 0;
  // The elements of it that are not on this rank's device yet.
  virtual ElementRange arriving(size_t node) const { return all_of(node); }
  // As await_total(), in bytes().
  virtual Status wait_total(size_t node) { return totals_[node].wait(); }
  void release(size_t node);

  comm::AsyncGroup& group_;
  GradientCarrier& carrier_;
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
