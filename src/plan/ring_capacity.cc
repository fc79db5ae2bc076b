#include "plan/ring_capacity.h"

#include <algorithm>
#include <functional>
#include <limits>

namespace jige::plan {
namespace {

// Below this, relative, a measurement says nothing that the rows did not say.
constexpr double kCapacityNews = 1e-6;

}  // namespace

RingCapacity::RingCapacity(const RingProblem& problem, const RingFacts& facts)
    : loads_(problem.candidates.size()) {
  const std::vector<topology::Resource>& resources = problem.topology->resources();
  std::vector<double> seen(resources.size(), 0);  // by one transfer alone
  for (size_t c = 0; c < problem.candidates.size(); ++c) {
    for (const topology::Usage& u : problem.candidates[c].usage) {
      const auto r = static_cast<size_t>(u.resource);
      seen[r] = std::max(seen[r], facts.solo(static_cast<int32_t>(c)) * u.cost);
    }
  }
  for (size_t r = 0; r < resources.size(); ++r) seen[r] = std::max(seen[r], resources[r].gb_per_s);
  row_count_ = resources.size();
  for (size_t c = 0; c < problem.candidates.size(); ++c) {
    for (const topology::Usage& u : problem.candidates[c].usage) {
      const auto r = static_cast<size_t>(u.resource);
      loads_[c].emplace_back(r, u.cost / seen[r]);
    }
  }
  add_ends(problem, facts);
  for (size_t c = 0; c < problem.candidates.size(); ++c) {
    const auto candidate = static_cast<int32_t>(c);
    add_conflict({candidate}, facts.solo(candidate));
  }
  for (const RingFacts::Conflict& conflict : facts.conflicts()) {
    add_conflict(conflict.members, conflict.rate);
  }
}

void RingCapacity::add_ends(const RingProblem& problem, const RingFacts& facts) {
  for (int32_t node = 0; node < problem.node_count; ++node) {
    for (const bool leaving : {true, false}) {
      std::vector<size_t> members;
      double most = 0;
      for (size_t c = 0; c < problem.candidates.size(); ++c) {
        const RingCandidate& candidate = problem.candidates[c];
        if (!candidate.usage.empty()) continue;
        if ((leaving ? candidate.from : candidate.to) != node) continue;
        members.push_back(c);
        most = std::max(most, facts.solo(static_cast<int32_t>(c)));
      }
      if (members.empty()) continue;
      for (const size_t c : members) loads_[c].emplace_back(row_count_, 1 / most);
      ++row_count_;
    }
  }
}

void RingCapacity::add_conflict(const std::vector<int32_t>& members, double rate) {
  if (rate >= this->rate(members) * (1 - kCapacityNews)) return;
  const double part = 1 / (rate * static_cast<double>(members.size()));
  for (const int32_t member : members) {
    loads_[static_cast<size_t>(member)].emplace_back(row_count_, part);
  }
  ++row_count_;
}

std::vector<double> RingCapacity::load_of(const Ring& ring) const {
  std::vector<double> load(row_count_, 0);
  for (const int32_t candidate : ring) {
    for (const auto& [row, part] : loads(candidate)) load[row] += part;
  }
  return load;
}

double RingCapacity::rate(const std::vector<TransferShare>& shares) const {
  std::vector<double> load(row_count_, 0);
  double fullest = 0;
  for (const TransferShare& s : shares) {
    for (const auto& [row, part] : loads(s.candidate)) {
      load[row] += part * s.share;
      fullest = std::max(fullest, load[row]);
    }
  }
  return fullest > 0 ? 1 / fullest : std::numeric_limits<double>::infinity();
}

double RingCapacity::rate(const std::vector<int32_t>& set) const {
  std::vector<TransferShare> shares;
  for (const int32_t candidate : set) shares.push_back({candidate, 1});
  return rate(shares);
}

std::vector<int32_t> useful_ways(const RingCapacity& capacity, const std::vector<int32_t>& ways) {
  std::vector<std::vector<double>> loads;
  for (const int32_t way : ways) loads.push_back(capacity.load_of({way}));
  std::vector<int32_t> useful;
  for (size_t a = 0; a < ways.size(); ++a) {
    bool needed = true;
    for (size_t b = 0; b < ways.size() && needed; ++b) {
      if (a == b || !std::ranges::equal(loads[b], loads[a], std::less_equal<>())) continue;
      needed = loads[a] == loads[b] && a < b;
    }
    if (needed) useful.push_back(ways[a]);
  }
  return useful;
}

}  // namespace jige::plan
