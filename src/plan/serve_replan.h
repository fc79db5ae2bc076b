// ReplanPolicy: when a server whose requests have drifted from its plan is planned for anew.
//
//   ReplanPolicy policy({.pause_s = 60});
//   if (policy.wants(state, recent, now_s)) …plan for `recent`, switch or not…
//   policy.ended(ReplanOutcome::kSwitched, planned_for(recent, with_rate), now_s);
//
// A plan is for the last requests, so it waits until they are all of the new kind: while those of
// the newer half of the window are others than those of the older half, the load still moves. One
// that never comes to rest is planned for as it is after looks_max looks.
//
// It does not plan again and again:
//   - never within pause_s of the end of the last time, whatever came of it
//   - where it came to nothing, since no setting keeps the bounds or something failed, not until
//     requests are others than those that were planned for then
//   - where settings were kept, since others are hardly better, the plan is from then on one for
//     these requests: whoever plans tells the detector so, as behind a switch. A state that was
//     told before it heard of that (DriftState::plans) does not count
// Threads: none; one caller. Times are given.
#pragma once

#include <array>
#include <cstdint>
#include <iterator>
#include <optional>
#include <string>
#include <string_view>

#include "plan/serve_drift.h"

namespace jige::plan {

enum class ReplanOutcome {
  kSwitched,    // to other settings
  kKept,        // the settings before are as good
  kInfeasible,  // nothing keeps the bounds
  kFailed
};
inline constexpr ReplanOutcome kReplanOutcomes[] = {ReplanOutcome::kSwitched, ReplanOutcome::kKept,
                                                    ReplanOutcome::kInfeasible,
                                                    ReplanOutcome::kFailed};
inline constexpr size_t kReplanOutcomeCount = std::size(kReplanOutcomes);
// "switched", "kept", "infeasible", "failed".
std::string_view replan_outcome_name(ReplanOutcome outcome);

struct ReplanOptions {
  double pause_s = 60;
  int64_t looks_max = 16;  // that it waits for requests to come to rest: two windows
  bool with_rate = false;  // plans are for a rate
  DriftOptions drift;      // of the detector
};

class ReplanPolicy {
 public:
  explicit ReplanPolicy(ReplanOptions options = {}) : options_(options) {}

  // What the detector says and the requests that it knows, at any time. True: plan for these, and
  // tell ended() what has come of it.
  bool wants(const DriftState& state, const RecentLoad& recent, double now_s);
  // `load`: as planned_for() has it.
  void ended(ReplanOutcome outcome, PlannedLoad load, double now_s);

 private:
  const ReplanOptions options_;
  bool planning_ = false;
  int64_t plans_ = 1;                   // that the detector is to know of
  std::optional<int64_t> waits_since_;  // by looks: for requests to come to rest
  std::optional<double> ended_s_;
  std::optional<PlannedLoad> hopeless_;
};

// What a server tells of it.
struct ReplanStatus {
  bool planning = false;
  std::array<int64_t, kReplanOutcomeCount> outcomes{};  // by ReplanOutcome
  // Of the last time; empty before there was one.
  std::string outcome;  // its name
  std::string text;     // what came of it, in words
  std::string file;     // that the plan was written to; empty: none
  double planning_s = 0;
  double age_s = 0;  // since it ended
};

}  // namespace jige::plan
