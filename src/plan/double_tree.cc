#include "plan/double_tree.h"

#include <algorithm>
#include <map>
#include <numeric>

#include "base/rng.h"
#include "plan/ring_baselines.h"

namespace jige::plan {
namespace {

constexpr double kTreeGain = 1e-12;  // less, relative, is rounding
constexpr double kHalf = 0.5;        // of the data, for each tree

}  // namespace

std::vector<TransferShare> tree_shares(const DoubleTree& trees) {
  std::map<int32_t, double> sums;
  for (size_t t = 0; t < 2; ++t) {
    for (const std::vector<int32_t>* ways : {&trees.up[t], &trees.down[t]}) {
      for (const int32_t candidate : *ways) {
        if (candidate >= 0) sums[candidate] += kHalf;
      }
    }
  }
  std::vector<TransferShare> shares;
  for (const auto& [candidate, share] : sums) shares.push_back({candidate, share});
  return shares;
}

DoubleTree TreeSearch::usual(std::vector<int32_t> nodes) const {
  DoubleTree trees{.nodes = std::move(nodes)};
  const std::array<TreeShape, 2> shapes = double_tree_shape(problem_.node_count);
  for (size_t t = 0; t < 2; ++t) {
    for (size_t place = 0; place < trees.nodes.size(); ++place) {
      const int32_t above = shapes[t].parent[place];
      const int32_t node = trees.nodes[place];
      const int32_t other = above < 0 ? -1 : trees.nodes[static_cast<size_t>(above)];
      trees.up[t].push_back(above < 0 ? -1 : usual_transport(problem_, node, other));
      trees.down[t].push_back(above < 0 ? -1 : usual_transport(problem_, other, node));
    }
  }
  trees.predicted = capacity_.rate(tree_shares(trees));
  return trees;
}

// Tries other ways, one edge at a time, until none helps.
void TreeSearch::refine(DoubleTree& trees) const {
  const auto try_ways = [&](int32_t& slot) {
    bool improved = false;
    const RingCandidate& edge = problem_.at(slot);
    for (const int32_t way : problem_.edge(edge.from, edge.to)) {
      const int32_t before = std::exchange(slot, way);
      const double rate = capacity_.rate(tree_shares(trees));
      if (rate > trees.predicted * (1 + kTreeGain)) {
        trees.predicted = rate;
        improved = true;
      } else {
        slot = before;
      }
    }
    return improved;
  };
  for (bool improved = true; improved;) {
    improved = false;
    for (size_t t = 0; t < 2; ++t) {
      for (std::vector<int32_t>* ways : {&trees.up[t], &trees.down[t]}) {
        for (int32_t& slot : *ways) {
          if (slot >= 0) improved |= try_ways(slot);
        }
      }
    }
  }
}

DoubleTree TreeSearch::best(const TreeLimits& limits) {
  std::vector<int32_t> nodes(static_cast<size_t>(problem_.node_count));
  std::iota(nodes.begin(), nodes.end(), 0);
  std::vector<DoubleTree> found;
  const bool all = problem_.node_count <= limits.exact_nodes_max;
  if (all) {
    do {
      found.push_back(usual(nodes));
    } while (std::next_permutation(nodes.begin(), nodes.end()));
  } else {
    Rng rng(derive_key(limits.seed, "double trees"));
    DoubleTree now = usual(nodes);
    for (int32_t move = 0; move < limits.moves; ++move) {
      std::vector<int32_t> other = now.nodes;
      std::swap(other[rng.below(other.size())], other[rng.below(other.size())]);
      DoubleTree tried = usual(std::move(other));
      if (tried.predicted >= now.predicted * (1 - kTreeGain)) now = std::move(tried);
    }
    found.push_back(std::move(now));
  }
  std::ranges::stable_sort(found, std::greater<>(), &DoubleTree::predicted);
  found.resize(std::min(found.size(), static_cast<size_t>(limits.refined)));
  for (DoubleTree& trees : found) refine(trees);
  DoubleTree best = *std::ranges::max_element(found, {}, &DoubleTree::predicted);
  const auto single = [](const std::vector<int32_t>& ways) { return ways.size() <= 1; };
  best.exact = all && std::ranges::all_of(problem_.between, single);
  return best;
}

}  // namespace jige::plan
