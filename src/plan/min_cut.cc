#include "plan/min_cut.h"

#include <algorithm>
#include <limits>

namespace jige::plan {
namespace {

constexpr int64_t kUnlimited = std::numeric_limits<int64_t>::max() / 2;

}  // namespace

ClosureProblem::ClosureProblem(size_t node_count)
    : source_(node_count), sink_(node_count + 1), weights_(node_count, 0) {}

void ClosureProblem::add_edge(size_t from, size_t to, int64_t capacity) {
  edges_.push_back({to, capacity});
  edges_.push_back({from, 0});
}

void ClosureProblem::require(size_t node, size_t other) { add_edge(node, other, kUnlimited); }

void ClosureProblem::list_outgoing() {
  begins_.assign(sink_ + 2, 0);
  for (size_t e = 0; e < edges_.size(); ++e) ++begins_[edges_[e ^ 1].to + 1];
  for (size_t node = 0; node <= sink_; ++node) begins_[node + 1] += begins_[node];
  outgoing_.resize(edges_.size());
  next_ = begins_;
  for (size_t e = 0; e < edges_.size(); ++e) outgoing_[next_[edges_[e ^ 1].to]++] = e;
}

bool ClosureProblem::find_levels() {
  level_.assign(sink_ + 1, -1);
  level_[source_] = 0;
  queue_.assign(1, source_);
  for (size_t i = 0; i < queue_.size(); ++i) {
    const size_t at = queue_[i];
    for (size_t k = begins_[at]; k < begins_[at + 1]; ++k) {
      const Edge& edge = edges_[outgoing_[k]];
      if (edge.capacity == 0 || level_[edge.to] >= 0) continue;
      level_[edge.to] = level_[at] + 1;
      queue_.push_back(edge.to);
    }
  }
  return level_[sink_] >= 0;
}

// One augmenting path down the levels; without recursion, since paths are as long as schedules.
int64_t ClosureProblem::push() {
  path_.clear();
  size_t at = source_;
  while (at != sink_) {
    bool advanced = false;
    while (next_[at] < begins_[at + 1]) {
      const size_t e = outgoing_[next_[at]];
      if (edges_[e].capacity > 0 && level_[edges_[e].to] == level_[at] + 1) {
        path_.push_back(e);
        at = edges_[e].to;
        advanced = true;
        break;
      }
      ++next_[at];
    }
    if (advanced) continue;
    if (path_.empty()) return 0;
    at = edges_[path_.back() ^ 1].to;
    path_.pop_back();
    ++next_[at];
  }
  int64_t amount = kUnlimited;
  for (const size_t e : path_) amount = std::min(amount, edges_[e].capacity);
  for (const size_t e : path_) {
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
  list_outgoing();
  while (find_levels()) {
    next_ = begins_;
    while (const int64_t amount = push()) gain -= amount;
  }
  Solution solution{.weight = gain, .chosen = {}};
  for (size_t node = 0; node < weights_.size(); ++node) {
    solution.chosen.push_back(level_[node] >= 0);
  }
  return solution;
}

}  // namespace jige::plan
