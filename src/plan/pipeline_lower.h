// From an order of passes to a whole schedule: recomputation, messages, fetches and releases,
// gradients to the host, optimizer steps, barriers, and the dependencies between them.
//
// The same rules for every order, so schedules differ in their order alone:
//   - a boundary whose two sides are on different devices travels as a message, sent behind the
//     pass that makes it; checkpoints leave in the same turn as the F that has them
//   - R stands right before its X in the compute queue and waits for its checkpoint only, so it
//   runs
//     while the gradient is still on its way
//   - parameters on the host: fetched as early as the room for `resident_stages` stages allows
//     (plan/pipeline_residency.h), released behind their last use
//   - gradients of a stage leave behind its last W; with parameters on the host a device begins
//     another stage's only when those of the `resident_stages`-th last that it is done with have
//     left
//   - optimizer and clipping add edges, never passes: `sync` and exact clipping put one barrier
//     between all gradients and all updates
// Threads: pure functions.
#pragma once

#include <cstdint>

#include "plan/pipeline_order.h"
#include "plan/pipeline_schedule.h"

namespace jige::plan {

// Fills schedule.tasks. REQUIRES: an order made by plan/pipeline_generate.h for the other fields of
// the schedule; without recompute the forward and backward stages agree.
void lower_pipeline(const PipelineOrder& order, int32_t resident_stages,
                    PipelineSchedule& schedule);

}  // namespace jige::plan
