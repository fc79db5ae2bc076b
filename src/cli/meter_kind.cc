#include "cli/meter_kind.h"

#include <algorithm>

namespace jige::cli {
namespace {

constexpr double kSetSeconds = 4, kSetSecondsMin = 0.4;
constexpr double kSetsWanted = 60;  // within a budget, though each took all its time

}  // namespace

double MeterRequest::seconds_per_set() const {
  return set_seconds.value_or(std::clamp(budget_s / kSetsWanted, kSetSecondsMin, kSetSeconds));
}

Result<topology::Description> described(topology::Description known, const TopologyFlags& source) {
  if (!source.given()) return known;
  JIGE_TRY(const topology::Topology given, source.load());
  topology::Description description = given.description();
  // What is true now counts, and not what was when the description was written.
  for (auto& [fact, value] : known.environment) {
    description.environment.insert_or_assign(fact, std::move(value));
  }
  return description;
}

}  // namespace jige::cli
