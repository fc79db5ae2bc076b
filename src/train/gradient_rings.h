// GradientRings: each rank adds the gradients of its own micro-batches, and an all-reduce of every
// node adds those of the ranks, beginning when the node's last own W is done.
//
// The order of additions is that of ring_plan.h: the same bits on all ranks and in every run with
// as many ranks and the same rings, others than with one rank.
// Threads: as GradientSync.
#pragma once

#include <algorithm>

#include "train/gradient_sync.h"

namespace jige::train {

class GradientRings final : public GradientSync {
 public:
  GradientRings(const RankOptions& options, GradientCarrier& carrier,
                const model::ModelWeights& weights)
      : GradientSync(options, carrier, weights) {}

  bool starts(int64_t micro_batch) const override { return micro_batch == place_; }

 private:
  bool leaves(int64_t micro_batch) const override {
    return micro_batch + size() >= micro_batch_count_;
  }
  // Who has no micro-batch adds nothing.
  void begin_step() override {
    if (place_ < micro_batch_count_) return;
    for (size_t node = 0; node < node_count(); ++node) {
      std::ranges::fill(bytes(node), std::byte{0});
    }
  }
  Status start_on_way(size_t node, int64_t) override {
    if (overlap_) release(node);
    return {};
  }
  void start_total(size_t node) override {
    const std::span<std::byte> own = bytes(node);
    if (own.empty()) return;
    const auto count = static_cast<int64_t>(own.size() / 4);
    totals_[node] = group_.start({.count = count, .src = own.data(), .dst = own.data()});
    sent_bytes_ += 2 * (size() - 1) * static_cast<int64_t>(own.size()) / size();
  }
};

}  // namespace jige::train
