#include "plan/shortfall.h"

#include <optional>

namespace jige::plan {
namespace {}  // namespace

Result<bool> learn_shortfall(const RingProblem& problem, profile::Profiler& profiler,
                             RingCapacity& capacity, std::vector<int32_t> set, double tolerance) {
  // The rate of a set where it is lower than the rows say.
  const auto shortfall = [&](const std::vector<int32_t>& part) -> Result<std::optional<double>> {
    JIGE_TRY(const double rate, profiler.rate(ring_transfers(problem, part)));
    const bool slower = rate * (1 + tolerance + kNews) < capacity.rate(part);
    return slower ? std::optional<double>(rate) : std::nullopt;
  };
  JIGE_TRY(std::optional<double> rate, shortfall(set));
  if (!rate) return false;
  for (size_t i = 0; i < set.size();) {
    std::vector<int32_t> rest = set;
    rest.erase(rest.begin() + static_cast<std::ptrdiff_t>(i));
    std::optional<double> slower;
    if (!rest.empty()) {
      JIGE_TRY(slower, shortfall(rest));
    }
    if (!slower) {
      ++i;
      continue;
    }
    set = std::move(rest);
    rate = slower;
  }
  capacity.add_conflict(set, *rate);
  return true;
}

}  // namespace jige::plan
