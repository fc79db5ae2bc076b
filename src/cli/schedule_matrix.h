// The schedules that `jige bench train-schedules` compares: every generator with every place of the
// optimizer, and the steps from Mobius to SPipe one by one.
//
// Rows with the optimizer on the host keep their parameters there too. All rows recompute, so all
// do the same arithmetic.
// Threads: pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "plan/pipeline_generate.h"
#include "plan/pipeline_schedule.h"

namespace jige::cli {

struct ScheduleRow {
  std::string name;  // "spipe"; of the ablation what a step adds
  std::string how;   // of the ablation: how the schedule says it
  plan::PipelineSchedule schedule;
};

struct MatrixRequest {
  std::vector<plan::ScheduleKind> kinds;
  std::vector<plan::OptimizerMode> optimizers;
  int32_t devices = 4;
  int32_t micro_batches = 8;
  int32_t block_count = 24;
  int32_t forward_stages = 2;   // on each device, where the schedule has a choice
  int32_t backward_stages = 6;  // spipe's
};

// One row for every kind and optimizer that go together; zero-offload on one device. Fails with
// kInvalidArgument when there is none, with the reason of the last.
Result<std::vector<ScheduleRow>> schedule_matrix(const MatrixRequest& request);

// Mobius without prefetch, with it, passes on devices of their own (decoupled), fine blocks,
// checkpoints that nobody waits for, optimizer beside the passes. Fails as generate_pipeline.
Result<std::vector<ScheduleRow>> schedule_ablation(const MatrixRequest& request);

}  // namespace jige::cli
