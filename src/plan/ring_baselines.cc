#include "plan/ring_baselines.h"

#include <algorithm>
#include <limits>
#include <optional>

#include "plan/ring_local.h"
#include "plan/ring_search.h"

namespace jige::plan {
namespace {

using topology::Engine;
using topology::TransferKind;

constexpr double kEqual = 0.97;
constexpr int64_t kStepsMax = 200'000;
constexpr double kSocketConstant = 16;  // GB/s
constexpr int32_t kExactNodesMax = 8;

// Looks for the first order, in lexicographic sense, whose edges all reach `threshold`.
class OrderSearch {
 public:
  OrderSearch(const RingProblem& problem, const std::vector<double>& edge_rate, double threshold)
      : problem_(problem), edge_rate_(edge_rate), threshold_(threshold), order_{0} {
    taken_.assign(static_cast<size_t>(problem.node_count), false);
    taken_[0] = true;
  }

  bool run() {
    if (++steps_ > kStepsMax) return false;
    const int32_t n = problem_.node_count;
    if (static_cast<int32_t>(order_.size()) == n) return reaches(order_.back(), 0);
    for (int32_t to = 1; to < n; ++to) {
      if (taken_[static_cast<size_t>(to)] || !reaches(order_.back(), to)) continue;
      taken_[static_cast<size_t>(to)] = true;
      order_.push_back(to);
      if (run()) return true;
      order_.pop_back();
      taken_[static_cast<size_t>(to)] = false;
    }
    return false;
  }
  const std::vector<int32_t>& order() const { return order_; }

 private:
  bool reaches(int32_t from, int32_t to) const {
    return edge_rate_[static_cast<size_t>(from * problem_.node_count + to)] >= threshold_;
  }
  const RingProblem& problem_;
  const std::vector<double>& edge_rate_;
  double threshold_;
  std::vector<int32_t> order_;
  std::vector<bool> taken_;
  int64_t steps_ = 0;
};

}  // namespace

namespace {

// The way through the receiver's own memory, -1 where there is none.
int32_t staged_at_receiver(const RingProblem& problem, int32_t from, int32_t to) {
  const topology::Topology& box = *problem.topology;
  for (const int32_t way : problem.edge(from, to)) {
    const topology::Transfer& t = problem.at(way).transfer;
    if (t.kind == TransferKind::kStaged && t.engine == Engine::kKernel &&
        box.component(t.via).numa == box.component(t.dst).numa) {
      return way;
    }
  }
  return -1;
}

bool meets_bridge(const RingProblem& problem, int32_t way) {
  const topology::Transfer& t = problem.at(way).transfer;
  return problem.topology->passes(t.src, t.dst, topology::ComponentKind::kHostBridge);
}

}  // namespace

int32_t usual_transport(const RingProblem& problem, int32_t from, int32_t to) {
  const std::vector<int32_t>& ways = problem.edge(from, to);
  for (const int32_t way : ways) {
    const topology::Transfer& t = problem.at(way).transfer;
    if (t.kind == TransferKind::kPush && t.engine == Engine::kKernel) return way;
  }
  const int32_t staged = staged_at_receiver(problem, from, to);
  if (staged >= 0) return staged;
  return ways.front();
}

Ring rank_order_ring(const RingProblem& problem) {
  Ring ring;
  for (int32_t n = 0; n < problem.node_count; ++n) {
    ring.push_back(usual_transport(problem, n, (n + 1) % problem.node_count));
  }
  return ring;
}

Ring single_link_ring(const RingProblem& problem, const RingFacts& facts) {
  std::vector<double> edge_rate(problem.between.size(), 0);
  std::vector<double> rates;
  for (size_t e = 0; e < problem.between.size(); ++e) {
    for (const int32_t way : problem.between[e])
      edge_rate[e] = std::max(edge_rate[e], facts.solo(way));
    if (edge_rate[e] > 0) rates.push_back(edge_rate[e]);
  }
  std::ranges::sort(rates);
  // The highest threshold with a ring: feasibility only falls as the threshold rises.
  size_t low = 0, high = rates.size();
  while (high - low > 1) {
    const size_t middle = (low + high) / 2;
    (OrderSearch(problem, edge_rate, rates[middle]).run() ? low : high) = middle;
  }
  const double threshold = rates[low] * kEqual;
  OrderSearch search(problem, edge_rate, threshold);
  if (!search.run()) return rank_order_ring(problem);
  Ring ring;
  for (size_t i = 0; i < search.order().size(); ++i) {
    const int32_t from = search.order()[i];
    const int32_t to = search.order()[(i + 1) % search.order().size()];
    int32_t way = usual_transport(problem, from, to);
    if (facts.solo(way) < threshold) {
      way = *std::ranges::max_element(problem.edge(from, to), {},
                                      [&](int32_t other) { return facts.solo(other); });
    }
    ring.push_back(way);
  }
  return ring;
}

Result<Ring> constants_ring(const RingProblem& problem, uint64_t seed) {
  topology::Description d = problem.topology->description();
  for (topology::Component& c : d.components) {
    c.gb_per_s = topology::kUnlimited;
    c.penalty = {};
  }
  for (topology::Link& link : d.links) {
    if (link.kind == topology::LinkKind::kSocket) {
      link.gb_per_s = link.back_gb_per_s = kSocketConstant;
    }
  }
  JIGE_TRY(const topology::Topology believed,
           topology::Topology::create(d, problem.topology->name()));
  RingProblem narrowed{.topology = &believed,
                       .node_count = problem.node_count,
                       .components = problem.components,
                       .candidates = {},
                       .between = std::vector<std::vector<int32_t>>(problem.between.size())};
  std::vector<int32_t> original;  // of the narrowed candidates
  for (int32_t from = 0; from < problem.node_count; ++from) {
    for (int32_t to = 0; to < problem.node_count; ++to) {
      if (problem.edge(from, to).empty()) continue;
      int32_t way = usual_transport(problem, from, to);
      const int32_t staged = staged_at_receiver(problem, from, to);
      if (staged >= 0 && meets_bridge(problem, way)) way = staged;
      RingCandidate candidate = problem.at(way);
      JIGE_TRY(candidate.usage, believed.usage(candidate.transfer));
      narrowed.between[static_cast<size_t>(from * problem.node_count + to)] = {
          static_cast<int32_t>(original.size())};
      narrowed.candidates.push_back(std::move(candidate));
      original.push_back(way);
    }
  }
  const RingFacts nothing(
      std::vector<double>(original.size(), std::numeric_limits<double>::infinity()));
  const std::optional<RingProposal> chosen =
      problem.node_count <= kExactNodesMax ? propose_ring(narrowed, nothing, {}, {}, {})
                                           : local_ring(narrowed, nothing, {}, {.seed = seed});
  if (!chosen) return rank_order_ring(problem);
  Ring ring;
  for (const int32_t candidate : chosen->ring) {
    ring.push_back(original[static_cast<size_t>(candidate)]);
  }
  return ring;
}

}  // namespace jige::plan
