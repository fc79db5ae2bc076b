// Plans an all-to-all: the rounds that together take least time, by measuring whole rounds.
//
//   JIGE_TRY(const RoundPlan plan, plan_rounds(problem, profiler, {}));
//   plan.best.front().rounds
//
// Every transfer is measured alone; then the schedule that description and measurements promise
// most (rounds.h) is measured round by round. Rounds that fall short are explained by the smallest
// part that does, as in ring_mix_planner.h; repeated until nothing promises less time than was
// reached. The shifted rounds of an unplanned all-to-all compete, so the plan is never slower than
// these. The best few are measured again, and where that can be done, as all-to-alls: without a
// barrier between rounds, as they are run later.
// Threads: one caller.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "plan/ring_facts.h"
#include "plan/rounds.h"
#include "profile/profiler.h"

namespace jige::plan {

struct RoundPlanOptions {
  int32_t keep = 3;        // schedules measured again at the end, beside the shifted one
  int32_t proposals = 24;  // measured at most
  double budget_s = 60;    // of measuring, in the meter's count
  double tolerance = 0;    // gains this small, relative, are not looked for
  RoundLimits limits;
  // Runs an all-to-all in these rounds and gives the GB/s that every node sends. Where there is
  // one, it decides between finalists.
  std::function<Result<double>(const std::vector<Round>&)> collective;
};

struct MeasuredRounds {
  std::string name;  // "shifted", "schedule 1" …
  std::vector<Round> rounds;
  std::vector<double> rates;  // GB/s of the slowest transfer of each round
  double seconds = 0;         // for blocks of 1 GB
  double predicted_s = 0;
  double collective = 0;  // GB/s of every node in a whole all-to-all; 0: not run

  // What every node sends while it runs.
  double gb_per_s() const { return static_cast<double>(rounds.size()) / seconds; }
};

struct RoundPlan {
  std::vector<MeasuredRounds> best;  // fastest first, the shifted one among them
  double bound_s = 0;                // by the rows no schedule takes less
  bool unpromised = false;           // none is promised less than the plan took
  int32_t proposals = 0;
  int64_t conflicts = 0;
  int64_t measured = 0;
  double cost_s = 0;
};

// Fails as measuring does. REQUIRES: no chain.
Result<RoundPlan> plan_rounds(const RingProblem& problem, profile::Profiler& profiler,
                              const RoundPlanOptions& options);

}  // namespace jige::plan
