// Checkpoints sent and received in lockstep, as blocking sends and receives do it: one leaves and
// arrives before the next pass of either device. The baseline for checkpoints that nobody but their
// recomputation waits for.
//
// Threads: pure function.
#pragma once

#include "plan/pipeline_schedule.h"

namespace jige::plan {

// Adds what passes wait for. REQUIRES: a schedule lowered by plan/pipeline_lower.h in which all F
// of a device come before its first R.
void wait_for_checkpoints(PipelineSchedule& schedule);

}  // namespace jige::plan
