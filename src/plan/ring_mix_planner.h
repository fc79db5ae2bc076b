// Finds several rings with weights that together carry more than any one ring, by measuring whole
// mixtures: all transfers at once, each with its share of the bytes.
//
//   JIGE_TRY(const RingPlan single, plan_ring(problem, profiler, {}));
//   JIGE_TRY(const RingMixPlan plan, plan_mix(problem, profiler, single, {.rings_max = 4}));
//   plan.best.front().mix.rings
//
// The mixture that description and measurements promise most (ring_mix.h) is measured. Where it
// falls short, the smallest part of it that explains this is found by measuring and becomes another
// row; repeated until nothing promises more than was reached. The best ring alone, it and its
// mirror image at equal weights, and rank order compete in the same way, so that the plan is never
// slower than these, and nothing is chosen that was not measured.
//
// A mixture's rate is what its rings carry together, so it compares with the rate of one ring.
// Threads: one caller.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "plan/ring_mix.h"
#include "plan/ring_planner.h"

namespace jige::plan {

struct RingMixOptions {
  int32_t rings_max = 2;
  int32_t keep = 3;        // finalists beside those that always compete
  int32_t proposals = 24;  // mixtures measured at most
  double budget_s = 60;    // of measuring, in the meter's count
  double tolerance = 0;    // gains this small, relative, are not looked for
  // Runs an all-reduce over rings of nodes with weights and gives the GB/s that the edges carry
  // together. Where there is one, it decides between finalists.
  std::function<Result<double>(const RingMix&)> collective;
};

struct MeasuredMix {
  std::string name;  // "best ring", "ring both ways", "rank order", "mixture 1" …
  RingMix mix;       // with what the rows promised at the end
  double rate = 0;
  double half_width = 0;  // relative, 95 %
  double collective = 0;  // 0: not run
};

struct RingMixPlan {
  std::vector<MeasuredMix> best;  // fastest first: the plan, then what it was compared with
  // No mixture of any number of rings is promised more; 0 where that is not known. For more devices
  // than kExactCheapestNodes it may be higher than it need be.
  double promised = 0;
  bool unpromised = false;  // none of so many rings is promised more than the plan reached
  int32_t proposals = 0;
  int64_t conflicts = 0;  // learned from mixtures
  double cost_s = 0;      // of measuring
};

// REQUIRES: `single` is a plan of the same problem. Fails as measuring does; a meter that cannot
// send unequal amounts leaves the mixtures out that need them.
Result<RingMixPlan> plan_mix(const RingProblem& problem, profile::Profiler& profiler,
                             const RingPlan& single, const RingMixOptions& options);

// The transfers of a ring the other way round, by the same means; nothing where an edge lacks them.
std::optional<Ring> mirrored_ring(const RingProblem& problem, const Ring& ring);

}  // namespace jige::plan
