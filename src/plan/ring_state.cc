#include "plan/ring_state.h"

#include <algorithm>
#include <limits>
#include <set>
#include <tuple>

namespace jige::plan {

using topology::Resource;
using topology::Usage;

RingState::RingState(const RingProblem& problem, const RingFacts& facts)
    : problem_(problem),
      facts_(facts),
      nodes_{0},
      visited_(static_cast<size_t>(problem.node_count), 0),
      chosen_(problem.candidates.size(), 0),
      values_{{std::numeric_limits<double>::infinity(), std::numeric_limits<double>::infinity()}},
      load_(problem.topology->resources().size(), 0),
      flows_(load_.size(), 0) {
  visited_[0] = 1;
}

double RingState::effective_rate(int32_t resource, int32_t flows) const {
  const Resource& r = problem_.topology->resources()[static_cast<size_t>(resource)];
  const bool penalised = r.penalty.flows > 0 && flows > r.penalty.flows;
  return r.gb_per_s * (penalised ? r.penalty.factor : 1);
}

RingValues RingState::peek(int32_t candidate) const {
  RingValues values = values_.back();
  values.bound = std::min(values.bound, facts_.bound(candidate, chosen_));
  values.predicted = std::min(values.predicted, values.bound);
  for (const Usage& u : problem_.at(candidate).usage) {
    const auto r = static_cast<size_t>(u.resource);
    values.predicted =
        std::min(values.predicted, effective_rate(u.resource, flows_[r] + 1) / (load_[r] + u.cost));
  }
  return values;
}

void RingState::push(int32_t candidate, RingValues values) {
  const RingCandidate& c = problem_.at(candidate);
  for (const Usage& u : c.usage) {
    const auto r = static_cast<size_t>(u.resource);
    undo_.push_back(load_[r]);
    load_[r] += u.cost;
    ++flows_[r];
  }
  chosen_[static_cast<size_t>(candidate)] = 1;
  visited_[static_cast<size_t>(c.to)] = 1;
  ring_.push_back(candidate);
  nodes_.push_back(c.to);
  values_.push_back(values);
}

void RingState::pop() {
  const int32_t candidate = ring_.back();
  const RingCandidate& c = problem_.at(candidate);
  for (auto u = c.usage.rbegin(); u != c.usage.rend(); ++u) {
    const auto r = static_cast<size_t>(u->resource);
    load_[r] = undo_.back();
    undo_.pop_back();
    --flows_[r];
  }
  chosen_[static_cast<size_t>(candidate)] = 0;
  if (c.to != 0) visited_[static_cast<size_t>(c.to)] = 0;
  ring_.pop_back();
  nodes_.pop_back();
  values_.pop_back();
}

int32_t RingState::tightest() const {
  int32_t tightest = -1;
  double least = std::numeric_limits<double>::infinity();
  for (size_t r = 0; r < load_.size(); ++r) {
    if (load_[r] <= 0) continue;
    const double rate = effective_rate(static_cast<int32_t>(r), flows_[r]) / load_[r];
    if (rate >= least) continue;
    least = rate;
    tightest = static_cast<int32_t>(r);
  }
  return tightest;
}

RingBranching::RingBranching(const RingProblem& problem, const profile::Symmetry& symmetry) {
  std::set<std::vector<int32_t>> distinct;
  for (const profile::Permutation& permutation : symmetry.permutations) {
    if (!symmetry.complete) break;
    std::vector<int32_t> nodes;
    for (const int32_t component : problem.components) {
      if (component < 0) break;  // a chain's ends are told apart by its NICs
      const auto at =
          std::ranges::find(problem.components, permutation[static_cast<size_t>(component)]);
      if (at == problem.components.end()) break;
      nodes.push_back(static_cast<int32_t>(at - problem.components.begin()));
    }
    if (nodes.size() == problem.components.size()) distinct.insert(std::move(nodes));
  }
  permutations_.assign(distinct.begin(), distinct.end());
  std::vector<int32_t> all;
  for (size_t p = 0; p < permutations_.size(); ++p) all.push_back(static_cast<int32_t>(p));
  stabilisers_.push_back(std::move(all));
  enter(0);
}

void RingBranching::enter(int32_t node) {
  std::vector<int32_t> fixing;
  for (const int32_t p : stabilisers_.back()) {
    if (permutations_[static_cast<size_t>(p)][static_cast<size_t>(node)] == node)
      fixing.push_back(p);
  }
  stabilisers_.push_back(std::move(fixing));
}

bool RingBranching::first_of_its_kind(int32_t node) const {
  return std::ranges::all_of(stabilisers_.back(), [&](int32_t p) {
    return permutations_[static_cast<size_t>(p)][static_cast<size_t>(node)] >= node;
  });
}

std::vector<RingStep> ring_steps(const RingProblem& problem, const RingState& state,
                                 const RingBranching& branching, double floor, bool by_prediction) {
  std::vector<RingStep> steps;
  const auto add = [&](int32_t to) {
    for (const int32_t candidate : problem.edge(state.node(), to)) {
      const RingValues values = state.peek(candidate);
      if ((by_prediction ? values.predicted : values.bound) > floor) {
        steps.push_back({candidate, values});
      }
    }
  };
  const bool closing = static_cast<int32_t>(state.ring().size()) + 1 == problem.node_count;
  if (closing) add(0);
  for (int32_t to = 1; to < problem.node_count && !closing; ++to) {
    if (!state.visited(to) && branching.first_of_its_kind(to)) add(to);
  }
  const auto rank = [&](const RingStep& step) {
    const double first = by_prediction ? step.values.predicted : step.values.bound;
    return std::tuple(-first, -step.values.predicted, problem.at(step.candidate).usage.size());
  };
  std::ranges::stable_sort(steps, {}, rank);
  return steps;
}

}  // namespace jige::plan
