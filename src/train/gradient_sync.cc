#include "train/gradient_sync.h"

#include "train/gradient_relay.h"
#include "train/gradient_rings.h"

namespace jige::train {

std::unique_ptr<GradientSync> GradientSync::make(const RankOptions& options,
                                                 const model::ModelWeights& weights,
                                                 const OptimizerShares* shares) {
  if (options.sum == GradientSum::kRings) return std::make_unique<GradientRings>(options, weights);
  return std::make_unique<GradientRelay>(options, weights, shares);
}

GradientSync::GradientSync(const RankOptions& options, const model::ModelWeights& weights)
    : group_(*options.group),
      weights_(weights),
      ring_(group_.plan().rings.front()),
      place_(ring_.position_of(group_.rank())),
      overlap_(options.overlap),
      totals_(weights.architecture().node_count()) {}

std::span<std::byte> GradientSync::bytes(size_t node) const {
  const TensorView& memory = weights_.gradient_memory(node);
  if (!memory) return {};
  return {static_cast<std::byte*>(memory.data), static_cast<size_t>(memory.count()) * 4};
}

void GradientSync::begin(int64_t micro_batch_count) {
  micro_batch_count_ = micro_batch_count;
  unreleased_ = node_count();
  begin_step();
}

// All ranks start totals in the order of nodes, from the head down.
void GradientSync::release(size_t node) {
  while (unreleased_ > node) start_total(--unreleased_);
}

void GradientSync::finish() { release(0); }

}  // namespace jige::train
