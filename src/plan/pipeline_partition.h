// Cuts a chain of blocks into stages so that the heaviest is as light as possible.
//
// Blocks differ: the embedding has many parameters and little work, the head much of both. Two
// costs count: the work of a stage (its part of the step), and its bytes (a stage over the limit is
// refused). Exact: a dynamic programme over (stage, end), cross-checked against all cuts in tests.
// Threads: pure functions.
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "base/result.h"

namespace jige::plan {

struct Partition {
  std::vector<int32_t> cuts;  // first blocks of the stages
  double heaviest = 0;        // work of the heaviest stage
};

// Among the partitions with the lightest heaviest stage, the one with the smallest sum of squared
// work, so that the rest is even too. Every stage has at least one block. Fails with
// kInvalidArgument when there are fewer blocks than stages, and with kExhausted when no partition
// keeps every stage within `bytes_max`, naming the least that would do.
// REQUIRES: as many bytes as work entries, or none; no negative entries.
Result<Partition> balance_stages(std::span<const double> work, int32_t stage_count,
                                 std::span<const int64_t> bytes = {},
                                 int64_t bytes_max = std::numeric_limits<int64_t>::max());

}  // namespace jige::plan
