// Sizes beyond which schedules are refused, so that tables over them stay small whatever a flag or
// a file says. The number of tasks is pipeline_schedule.h's.
//
// Threads: pure functions.
#pragma once

#include <cstdint>

#include "base/result.h"
#include "plan/pipeline_graph.h"

namespace jige::plan {

// Blocks times micro-batches.
inline constexpr int64_t kPipelineBlockPassesMax = int64_t{1} << 23;

// Whether the clocks of HappensBefore fit: four bytes for every task and queue. Fails with
// kExhausted.
Status check_clocks(const PipelineGraph& graph);

}  // namespace jige::plan
