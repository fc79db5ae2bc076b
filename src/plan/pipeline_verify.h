// Proves that a schedule computes a training step, whatever its tasks' times are.
//
// What holds when verify_pipeline() succeeds, where "before" means in every run that respects
// queues and dependencies:
//   (1) no tasks wait for one another in a circle, messages included; there is one end, a barrier
//       behind everything
//   (2) every (block, micro-batch) has exactly one F, X and W, and one R exactly where recompute is
//       on; blocks are cut alike for all micro-batches; F before X (R before X with recompute)
//       before W
//   (3) every pass has its input: from the pass beside it on the same device, or by a message of
//       the same boundary and micro-batch. Every message is needed, is sent once and received once,
//       and arrives in the order of sending
//   (4) parameters are on the device in every pass, and no update changes what a pass of this
//       step still reads
//   (5) a block is updated exactly once, with the gradients of all micro-batches, added up in
//       ascending order; they are on the host before a host optimizer reads them
//       where the last block reads parameters of the first, the first is updated behind the last,
//       with both gradients
//   (6) sync: updates after all passes. Exact clipping: updates after the last gradient of all
//       blocks
// Memory is another question: plan/pipeline_peak.h.
//
// A failure is kCorrupt and names the tasks, blocks and micro-batches concerned.
// Threads: pure functions.
#pragma once

#include "base/result.h"
#include "plan/pipeline_graph.h"
#include "plan/pipeline_schedule.h"

namespace jige::plan {

Status verify_pipeline(const PipelineSchedule& schedule);

}  // namespace jige::plan
