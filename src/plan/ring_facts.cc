#include "plan/ring_facts.h"

#include <algorithm>
#include <limits>

namespace jige::plan {

void RingFacts::add_conflict(std::vector<int32_t> members, double rate) {
  const auto id = static_cast<int32_t>(conflicts_.size());
  for (const int32_t member : members) conflicts_of_[static_cast<size_t>(member)].push_back(id);
  conflicts_.push_back({std::move(members), rate});
}

double RingFacts::bound(int32_t candidate, const std::vector<char>& chosen) const {
  double bound = solo(candidate);
  for (const int32_t id : conflicts_of_[static_cast<size_t>(candidate)]) {
    const Conflict& conflict = conflicts_[static_cast<size_t>(id)];
    if (conflict.rate >= bound) continue;
    const bool inside = std::ranges::all_of(conflict.members, [&](int32_t member) {
      return member == candidate || chosen[static_cast<size_t>(member)];
    });
    if (inside) bound = conflict.rate;
  }
  return bound;
}

double RingFacts::ring_bound(const RingProblem& problem) const {
  std::vector<double> out(static_cast<size_t>(problem.node_count), 0), in = out;
  for (size_t i = 0; i < problem.candidates.size(); ++i) {
    double& leaving = out[static_cast<size_t>(problem.candidates[i].from)];
    double& reaching = in[static_cast<size_t>(problem.candidates[i].to)];
    leaving = std::max(leaving, solo_[i]);
    reaching = std::max(reaching, solo_[i]);
  }
  double bound = std::numeric_limits<double>::infinity();
  for (size_t n = 0; n < out.size(); ++n) bound = std::min({bound, out[n], in[n]});
  return bound;
}

}  // namespace jige::plan
