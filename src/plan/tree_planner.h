// Plans an all-reduce of small messages: double binary trees, measured as a whole, beside a ring.
//
//   JIGE_TRY(const TreePlan plan, plan_trees(problem, profiler, single, {.latency_s = 20e-6}));
//   plan.times(64 << 10, ring_rate)          // what a message of this size takes either way
//
// The trees that description and measurements promise most (double_tree.h) are measured, all edges
// up and down at once with their parts of the data; what falls short is explained and the search
// repeated, as in ring_mix_planner.h. Trees over rank order compete.
//
// Where all-reduces can be run, those of the message's size decide between the best few, and the
// size from which rings are faster is measured; a part of the budget is left for that, and where it
// is little, the ring, the best trees and the smallest size are run all the same. Otherwise it is a
// prediction, since a step's latency is given, not measured:
//   ring:  2 (n - 1) steps, and 2 (n - 1) / n of the bytes over every edge
//   trees: 2 depth steps, and all bytes, half by each tree, over the edges of both
// Threads: one caller.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "plan/double_tree.h"
#include "plan/ring_planner.h"

namespace jige::plan {

struct TreePlanOptions {
  double latency_s = 10e-6;  // of a step, assumed
  int32_t proposals = 16;    // measured at most
  double budget_s = 60;      // of measuring, in the meter's count, all-reduces included
  double tolerance = 0;      // gains this small, relative, are not looked for
  int32_t keep = 3;          // finalists, beside those over rank order
  int64_t message_bytes = 64 << 10;
  TreeLimits limits;
  // Runs an all-reduce of so many bytes and gives its seconds: by trees, or along the plan's rings
  // for null.
  std::function<Result<double>(const DoubleTree*, int64_t bytes)> collective;
};

struct MeasuredTrees {
  std::string name;  // "rank order", "trees 1" …
  DoubleTree trees;
  double rate = 0;  // GB/s of the whole
  double half_width = 0;
  double collective_s = 0;  // of an all-reduce of the message's size; 0: not run
};

struct TreePlan {
  std::vector<MeasuredTrees> best;  // fastest first, those over rank order among them
  int32_t nodes = 0;
  int32_t depth = 0;
  double latency_s = 0;
  bool unpromised = false;  // no trees are promised more than the plan reached
  int32_t proposals = 0;
  double cost_s = 0;

  struct Times {
    double ring_s = 0;
    double trees_s = 0;
  };
  // By all-reduces: the ring's seconds at the message's size, up to how many bytes the first of
  // `best` was faster, and the largest tried, kMessageBytesMax unless the budget ended.
  double ring_collective_s = 0;
  std::optional<int64_t> measured_crossover_bytes;
  int64_t tried_bytes_max = 0;

  // Predicted from measured rates; `ring_rate` in GB/s.
  Times times(double bytes, double ring_rate) const;
  // Up to how many bytes trees are faster; nothing where they are at any size.
  std::optional<double> crossover_bytes(double ring_rate) const;
  // For messages of up to how many bytes the trees shall be taken: as measured, else as predicted.
  int64_t bytes_max(double ring_rate) const;
};

inline constexpr int64_t kMessageBytesMax = 1 << 20;

// REQUIRES: `single` is a plan of the same problem. Fails as measuring does, with kUnsupported for
// a meter that cannot send unequal amounts where trees need them.
Result<TreePlan> plan_trees(const RingProblem& problem, profile::Profiler& profiler,
                            const RingPlan& single, const TreePlanOptions& options);

}  // namespace jige::plan
