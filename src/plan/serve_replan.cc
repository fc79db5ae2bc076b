#include "plan/serve_replan.h"

#include <cmath>
#include <utility>

namespace jige::plan {
namespace {

// Halves of n requests of one distribution, with lengths farther apart than this over sqrt(n), come
// about once in a hundred times; their rates differ by more than its square's power of e times as
// often.
constexpr double kApart = 3.2;
constexpr double kRatesApart = 5.4;

// Whether the newer half of the requests is like the older.
bool is_at_rest(const RecentLoad& recent, bool with_rate) {
  const size_t half = recent.ended.size() / 2, arrivals_half = recent.arrivals_s.size() / 2;
  if (half == 0 || arrivals_half == 0) return true;
  const auto part = [](const auto& all, size_t begin, size_t end) {
    return std::vector(all.begin() + static_cast<std::ptrdiff_t>(begin),
                       all.begin() + static_cast<std::ptrdiff_t>(end));
  };
  const RecentLoad older{.ended = part(recent.ended, 0, half),
                         .arrivals_s = part(recent.arrivals_s, 0, arrivals_half)};
  const RecentLoad newer{
      .ended = part(recent.ended, half, recent.ended.size()),
      .arrivals_s = part(recent.arrivals_s, arrivals_half, recent.arrivals_s.size())};
  const LoadDistance apart = load_distance(newer, planned_for(older, with_rate));
  const auto root = [](const auto& all) { return std::sqrt(static_cast<double>(all.size())); };
  return apart.lengths() <= kApart / root(recent.ended) &&
         std::log(apart.rate_times()) <= kRatesApart / root(recent.arrivals_s);
}

}  // namespace

std::string_view replan_outcome_name(ReplanOutcome outcome) {
  switch (outcome) {
    case ReplanOutcome::kSwitched:
      return "switched";
    case ReplanOutcome::kKept:
      return "kept";
    case ReplanOutcome::kInfeasible:
      return "infeasible";
    case ReplanOutcome::kFailed:
      return "failed";
  }
  return "failed";
}

bool ReplanPolicy::wants(const DriftState& state, const RecentLoad& recent, double now_s) {
  if (planning_ || state.plans < plans_ || recent.ended.empty()) return false;
  const bool pauses = ended_s_ && now_s - *ended_s_ < options_.pause_s;
  const auto is_hopeless = [&] {
    return hopeless_ && !is_drift(load_distance(recent, *hopeless_), *hopeless_, options_.drift);
  };
  if (!state.drifted || pauses || is_hopeless()) {
    waits_since_.reset();
    return false;
  }
  if (!waits_since_) waits_since_ = state.looks;
  if (!is_at_rest(recent, options_.with_rate) && state.looks - *waits_since_ < options_.looks_max) {
    return false;
  }
  planning_ = true;
  return true;
}

void ReplanPolicy::ended(ReplanOutcome outcome, PlannedLoad load, double now_s) {
  planning_ = false;
  ended_s_ = now_s;
  waits_since_.reset();
  hopeless_.reset();
  if (outcome == ReplanOutcome::kInfeasible || outcome == ReplanOutcome::kFailed) {
    hopeless_ = std::move(load);
  } else {
    ++plans_;
  }
}

}  // namespace jige::plan
