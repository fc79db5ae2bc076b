// A plan for the requests that a server has had last, by what its plan rests on: whether it is
// worth other settings.
//
//   JIGE_TRY(const ServeReplan found,
//            replan_serving({.planned = file, .recent = recent, .settings = in_force,
//                            .block_count = 1024}));
//   if (found.outcome == plan::ReplanOutcome::kSwitched) …found.plan.chosen->settings…
//
// Requests have the lengths of those that ended last, in their order, and at a rate they come as
// the last ones came. Bounds, users, times of iterations and what may be chosen are those of the
// plan. The settings in force are predicted for the same requests and are one of those to choose
// from; others take their place where they keep bounds that these do not, or are better by
// kWorthSwitching: simulations of so few requests do not tell less apart.
// The same input gives the same plan. Threads: none.
#pragma once

#include <atomic>
#include <string>

#include "base/result.h"
#include "plan/serve_drift.h"
#include "plan/serve_replan.h"
#include "sim/serve_plan_file.h"
#include "sim/serve_planner.h"

namespace jige::sim {

// More requests a second or, at a rate, less mean time of an answer, as a share.
inline constexpr double kWorthSwitching = 0.03;

struct ServeReplanInput {
  const ServePlanFile& planned;
  const plan::RecentLoad& recent;
  ServeSettings settings;   // in force
  int32_t block_count = 0;  // of the server's cache
  const std::atomic<bool>* cancel = nullptr;
};

struct ServeReplan {
  plan::ReplanOutcome outcome = plan::ReplanOutcome::kKept;
  ServePlanRequest request;
  ServePlan plan;   // `usual`: the settings before
  double gain = 0;  // of what is chosen over the settings before; 0 where nothing is

  // What came of it, in words: "rounds, 8 … in place of chunked, …: 12.1 requests a second, 10.4
  // before".
  std::string text() const;
  // Of the plan that counts from a switch on. REQUIRES: plan.chosen.
  Json to_json(const ServePlanFile& planned) const;
};

// Fails with kInvalidArgument on a plan without what it was searched among and where no request has
// ended, with kCancelled, and as plan_serving() does.
Result<ServeReplan> replan_serving(const ServeReplanInput& input);

}  // namespace jige::sim
