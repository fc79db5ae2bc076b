// Cuts a chain of blocks into stages so that the heaviest is as light as possible.
//
// Blocks differ: the embedding has many parameters and little work, the head much of both. Two
// costs count: the work of a stage (its part of the step), and its bytes (a stage over the limit is
// refused). Exact: a dynamic programme over (stage, end), cross-checked against all cuts in tests.
// Threads: pure functions.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/result.h"

namespace jige::plan {

struct Partition {
  std::vector<int32_t> cuts;  // first blocks of the stages
  double heaviest = 0;        // work of the heaviest stage
};

// What stages differ in; empty lists: nothing.
struct StageLimits {
  std::span<const double> paces = {};       // by stage: what a unit of work takes there
  std::span<const int64_t> bytes = {};      // by block
  std::span<const int64_t> bytes_max = {};  // by stage
};

// Among the partitions with the lightest heaviest stage, the one with the smallest sum of squared
// work, so that the rest is even too. Work counts as what it takes in its stage. Every stage has at
// least one block. Fails with kInvalidArgument when there are fewer blocks than stages, and with
// kExhausted when no partition keeps every stage within its bytes, naming the least multiple of
// all limits that would do.
// REQUIRES: paces and limits of as many stages, bytes of as many blocks, or none; bytes where there
// are limits; no negative entries, paces above 0.
Result<Partition> balance_stages(std::span<const double> work, int32_t stage_count,
                                 const StageLimits& limits = {});

}  // namespace jige::plan
