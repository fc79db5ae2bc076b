#include "plan/min_cut.h"

#include <algorithm>
#include <limits>

namespace jige::plan {
namespace {

constexpr int64_t kUnlimited = std::numeric_limits<int64_t>::max() / 2;

}  // namespace

ClosureProblem::ClosureProblem(size_t node_count)
    : source_(node_count),
      sink_(node_count + 1),
      weights_(node_count, 0),
      outgoing_(node_count + 2) {}

void ClosureProblem::add_edge(size_t from, size_t to, int64_t capacity) {
  outgoing_[from].push_back(edges_.size());
  edges_.push_back({to, capacity});
  outgoing_[to].push_back(edges_.size());
  edges_.push_back({from, 0});
}

void ClosureProblem::require(size_t node, size_t other) { add_edge(node, other, kUnlimited); }

bool ClosureProblem::find_levels() {
  level_.assign(outgoing_.size(), -1);
  level_[source_] = 0;
  std::vector<size_t> queue{source_};
  for (size_t i = 0; i < queue.size(); ++i) {
    for (const size_t e : outgoing_[queue[i]]) {
      if (edges_[e].capacity == 0 || level_[edges_[e].to] >= 0) continue;
      level_[edges_[e].to] = level_[queue[i]] + 1;
      queue.push_back(edges_[e].to);
    }
  }
  return level_[sink_] >= 0;
}

// One augmenting path down the levels; without recursion, since paths are as long as schedules.
int64_t ClosureProblem::push() {
  std::vector<size_t> path;
  size_t at = source_;
  while (at != sink_) {
    bool advanced = false;
    while (next_[at] < outgoing_[at].size()) {
      const size_t e = outgoing_[at][next_[at]];
      if (edges_[e].capacity > 0 && level_[edges_[e].to] == level_[at] + 1) {
        path.push_back(e);
        at = edges_[e].to;
        advanced = true;
        break;
      }
      ++next_[at];
    }
    if (advanced) continue;
    if (path.empty()) return 0;
    at = edges_[path.back() ^ 1].to;
    path.pop_back();
    ++next_[at];
  }
  int64_t amount = kUnlimited;
  for (const size_t e : path) amount = std::min(amount, edges_[e].capacity);
  for (const size_t e : path) {
    edges_[e].capacity -= amount;
    edges_[e ^ 1].capacity += amount;
  }
  return amount;
}

ClosureProblem::Solution ClosureProblem::solve() {
  int64_t gain = 0;
  for (size_t node = 0; node < weights_.size(); ++node) {
    if (weights_[node] > 0) {
      gain += weights_[node];
      add_edge(source_, node, weights_[node]);
    } else if (weights_[node] < 0) {
      add_edge(node, sink_, -weights_[node]);
    }
  }
  while (find_levels()) {
    next_.assign(outgoing_.size(), 0);
    while (const int64_t amount = push()) gain -= amount;
  }
  Solution solution{.weight = gain, .chosen = {}};
  for (size_t node = 0; node < weights_.size(); ++node) {
    solution.chosen.push_back(level_[node] >= 0);
  }
  return solution;
}

}  // namespace jige::plan
