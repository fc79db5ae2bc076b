#include "train/optimizer_shares.h"

#include <algorithm>

#include "base/check.h"
#include "tensor/arena.h"

namespace jige::train {
namespace {

constexpr int64_t kLineElements = 16;  // f32 of a cache line

ShareMemory memory_of(std::span<const model::NamedParam> params, const OptimizerShares& shares,
                      const model::WeightsOptions& options, const ShareRequest& request) {
  ShareMemory memory;
  for (size_t i = 0; i < params.size(); ++i) {
    const int64_t count = shares.of_param(i, request.rank).count;
    if (count == 0) continue;
    const DType dtype = ops::moment_layout(request.moments, params[i].spec->shape).dtype;
    const ops::MomentLayout moment = ops::moment_part_layout(dtype, count);
    memory.moments_bytes += 2 * arena_bytes(moment.dtype, moment.shape);
    if (options.values_in_gradients && params[i].spec->packed) {
      memory.masters_bytes += arena_bytes(DType::kF32, Shape{count});
    }
  }
  return memory;
}

}  // namespace

ElementRange overlap(const ElementRange& a, const ElementRange& b) {
  const int64_t begin = std::max(a.begin, b.begin);
  return {begin, std::max<int64_t>(std::min(a.end(), b.end()) - begin, 0)};
}

OptimizerShares::OptimizerShares(std::span<const model::NamedParam> params, int ranks,
                                 ops::MomentFormat moments)
    : ranks_(ranks) {
  JIGE_CHECK(ranks >= 1, "{} ranks share an optimizer", ranks);
  for (const model::NamedParam& param : params) {
    if (param.node >= node_elements_.size()) {
      node_elements_.resize(param.node + 1);
      node_first_.resize(param.node + 1, nodes_.size());
    }
    int64_t& end = node_elements_[param.node];
    nodes_.push_back(param.node);
    begins_.push_back(end);
    counts_.push_back(param.spec->shape.count());
    cuts_.push_back(ops::moment_cut(ops::moment_layout(moments, param.spec->shape).dtype));
    end += whole_lines(counts_.back() * 4) / 4;
  }
}

int64_t OptimizerShares::border(size_t node, int64_t rank) const {
  const int64_t lines = node_elements_[node] / kLineElements;
  const int64_t at = (lines * rank + ranks_ - 1) / ranks_ * kLineElements;
  if (at == node_elements_[node]) return at;
  // The last parameter of the node that begins there or before: its first one begins at 0.
  const auto first = begins_.begin() + static_cast<int64_t>(node_first_[node]);
  const auto last = node + 1 < node_first_.size()
                        ? begins_.begin() + static_cast<int64_t>(node_first_[node + 1])
                        : begins_.end();
  const auto i = static_cast<size_t>(std::upper_bound(first, last, at) - begins_.begin()) - 1;
  const int64_t in_blocks = (at - begins_[i] + cuts_[i] - 1) / cuts_[i] * cuts_[i];
  return begins_[i] + std::min(in_blocks, whole_lines(counts_[i] * 4) / 4);
}

ElementRange OptimizerShares::of_node(size_t node, int rank) const {
  if (node >= node_elements_.size()) return {};
  const int64_t begin = border(node, rank);
  return {begin, border(node, rank + 1) - begin};
}

ElementRange OptimizerShares::of_param(size_t i, int rank) const {
  ElementRange part = overlap(of_node(nodes_[i], rank), {begins_[i], counts_[i]});
  part.begin = std::max<int64_t>(part.begin - begins_[i], 0);
  return part;
}

ShareMemory share_memory(const model::Architecture& architecture,
                         const model::WeightsOptions& options, const ShareRequest& request) {
  const std::vector<model::NamedParam> params = model::trained_params(architecture, options);
  const OptimizerShares shares(params, request.ranks, request.moments);
  return memory_of(params, shares, options, request);
}

ShareMemory largest_share_memory(const model::Architecture& architecture,
                                 const model::WeightsOptions& options, ShareRequest request) {
  const std::vector<model::NamedParam> params = model::trained_params(architecture, options);
  const OptimizerShares shares(params, request.ranks, request.moments);
  ShareMemory largest;
  for (request.rank = 0; request.rank < request.ranks; ++request.rank) {
    const ShareMemory share = memory_of(params, shares, options, request);
    if (share.total_bytes() > largest.total_bytes()) largest = share;
  }
  return largest;
}

}  // namespace jige::train
