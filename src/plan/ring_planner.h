// Finds the ring that runs fastest when all its transfers run at once, by measuring sets of
// transfers rather than trusting the rates of single links.
//
//   JIGE_TRY(const RingProblem problem, ring_problem(box, devices, {}));
//   Profiler profiler(box, meter, store);
//   JIGE_TRY(const RingPlan plan, plan_ring(problem, profiler, {}));
//   ring_text(problem, plan.best.front().ring)
//
// 1. Every transfer is measured alone; symmetries of the description are confirmed or dropped.
// 2. The ring that description and measurements promise most is measured as a whole. Where it falls
//    short, the smallest part of it that explains the rate is found by measuring and kept as a
//    conflict, which bounds all rings that contain it. Repeated until nothing promises more than
//    was reached.
// 3. Up to `exact_nodes_max` nodes, a depth-first search then goes through all rings that the
// bounds
//    do not exclude, measuring and learning, so that the result does not depend on the description
//    being right. When the budget ends first, the bound on what was left says how far off it may
//    be.
// 4. The best few are measured again, as whole sets, and where that can be done, by the collective
// itself; the fastest of these is the plan. Steps 2 and 3 leave a part of the budget for it. Where
// that is little, fewer are measured again, but always the one that was fastest.
//
// When rates change on the way, all begins anew, with what is left of the budget; once also where
// nothing is left.
// Larger problems take step 2 from a beam and local search, and skip step 3. The rank order and the
// choice of a planner that knows single links only are measured too, and compete.
//
// Exact if adding a transfer never makes a set faster, and within `tolerance`.
// Threads: one caller.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "plan/ring_facts.h"
#include "plan/ring_problem.h"
#include "profile/profiler.h"

namespace jige::plan {

struct RingPlanOptions {
  int32_t keep = 5;        // finalists
  int32_t proposals = 40;  // rings that step 2 measures at most
  int32_t exact_nodes_max = 8;
  double budget_s = 60;  // of measuring, in the meter's count; step 1 is done even beyond it
  double tolerance = 0;  // gains this small, relative, are not looked for
  bool symmetry = true;
  uint64_t seed = 1;
  // Runs an all-reduce over the devices in this order (numbers of nodes) and gives the GB/s of each
  // edge. Where there is one, it decides between finalists.
  std::function<Result<double>(const std::vector<int32_t>&)> collective;
  // Asked now and then while rings are ruled out; false ends it all with kCancelled. May be empty.
  std::function<bool()> go_on;
};

struct MeasuredRing {
  Ring ring;
  double rate = 0;        // GB/s of the whole set
  double half_width = 0;  // relative, 95 %
  double predicted = 0;   // by the description's rates
  double collective = 0;  // GB/s of each edge in an all-reduce; 0: not run
};

struct RingPlan {
  std::vector<MeasuredRing> best;                   // fastest first; all measured as whole sets
  MeasuredRing rank_order, single_link, constants;  // ring_baselines.h
  double bound = 0;                                 // no ring is faster than this
  bool unpromised = false;         // the description, as corrected, promises no ring more
  bool proven = false;             // every other ring was excluded by measurement
  bool budget_ended = false;       // before the search did
  int64_t conflicts = 0;           // learned
  int64_t steps = 0;               // of the proof
  int32_t proposals = 0;           // measured in step 2
  double found_after_s = 0;        // measuring until a ring as fast as the best one was met
  size_t symmetries = 1;           // confirmed relabellings, the identity among them
  int32_t restarts = 0;            // after rates changed, or symmetry was found wrong
  int32_t epoch = 0;               // of the profiler, whose rates the plan rests on
  profile::ProfilerCounts counts;  // of this plan alone
  std::optional<RingFacts> facts;  // what was measured on the way

  // How much faster, relative, a ring may be that was not found.
  double gap() const { return best.empty() ? 0 : bound / best.front().rate - 1; }
};

// Fails as measuring does, and with kUnavailable when rates keep changing.
Result<RingPlan> plan_ring(const RingProblem& problem, profile::Profiler& profiler,
                           const RingPlanOptions& options);

}  // namespace jige::plan
