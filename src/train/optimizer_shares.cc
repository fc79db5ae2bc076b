#include "train/optimizer_shares.h"

#include <algorithm>

#include "base/check.h"
#include "tensor/arena.h"

namespace jige::train {
namespace {

constexpr int64_t kLineElements = 16;  // f32 of a cache line

}  // namespace

ElementRange overlap(const ElementRange& a, const ElementRange& b) {
  const int64_t begin = std::max(a.begin, b.begin);
  return {begin, std::max<int64_t>(std::min(a.end(), b.end()) - begin, 0)};
}

OptimizerShares::OptimizerShares(std::span<const model::NamedParam> params, int ranks)
    : ranks_(ranks) {
  JIGE_CHECK(ranks >= 1, "{} ranks share an optimizer", ranks);
  for (const model::NamedParam& param : params) {
    if (param.node >= node_elements_.size()) node_elements_.resize(param.node + 1);
    int64_t& end = node_elements_[param.node];
    nodes_.push_back(param.node);
    begins_.push_back(end);
    counts_.push_back(param.spec->shape.count());
    end += whole_lines(counts_.back() * 4) / 4;
  }
}

ElementRange OptimizerShares::of_node(size_t node, int rank) const {
  const int64_t lines = node < node_elements_.size() ? node_elements_[node] / kLineElements : 0;
  const auto border = [&](int64_t r) { return (lines * r + ranks_ - 1) / ranks_ * kLineElements; };
  return {border(rank), border(rank + 1) - border(rank)};
}

ElementRange OptimizerShares::of_param(size_t i, int rank) const {
  ElementRange part = overlap(of_node(nodes_[i], rank), {begins_[i], counts_[i]});
  part.begin = std::max<int64_t>(part.begin - begins_[i], 0);
  return part;
}

ShareMemory share_memory(const model::Architecture& architecture,
                         const model::WeightsOptions& options, int rank, int ranks) {
  const std::vector<model::NamedParam> params = model::trained_params(architecture, options);
  const OptimizerShares shares(params, ranks);
  ShareMemory memory;
  for (size_t i = 0; i < params.size(); ++i) {
    const int64_t count = shares.of_param(i, rank).count;
    if (count == 0) continue;
    const int64_t bytes = arena_bytes(DType::kF32, Shape{count});
    memory.moments_bytes += 2 * bytes;
    if (options.values_in_gradients && params[i].spec->packed) memory.masters_bytes += bytes;
  }
  return memory;
}

}  // namespace jige::train
