#include "cli/schedule_matrix.h"

#include <algorithm>
#include <utility>

namespace jige::cli {

using plan::OptimizerMode;
using plan::PipelineSchedule;
using plan::ScheduleKind;
using plan::ScheduleRequest;

namespace {

ScheduleRequest request_of(const MatrixRequest& matrix, ScheduleKind kind,
                           OptimizerMode optimizer) {
  ScheduleRequest request = plan::natural_request(kind);
  request.devices = kind == ScheduleKind::kZeroOffload ? 1 : matrix.devices;
  request.micro_batches = matrix.micro_batches;
  request.block_count = matrix.block_count;
  if (plan::has_stage_choice(kind)) {
    request.forward_stages = request.backward_stages = matrix.forward_stages;
  }
  if (kind == ScheduleKind::kSPipe) request.backward_stages = matrix.backward_stages;
  request.optimizer = optimizer;
  request.host_parameters = optimizer != OptimizerMode::kDevice;
  request.recompute = true;
  return request;
}

// The norm is respected everywhere. Beside the passes it is not known yet, so updates speculate.
void choose_clipping(ScheduleRequest& request) {
  request.clip = request.optimizer == OptimizerMode::kAsync ? plan::ClipMode::kSpeculate
                                                            : plan::ClipMode::kExact;
}

}  // namespace

Result<std::vector<ScheduleRow>> schedule_matrix(const MatrixRequest& matrix) {
  std::vector<ScheduleRow> rows;
  std::string reason = "no schedule was named";
  for (const ScheduleKind kind : matrix.kinds) {
    for (const OptimizerMode optimizer : matrix.optimizers) {
      ScheduleRequest request = request_of(matrix, kind, optimizer);
      choose_clipping(request);
      Result<PipelineSchedule> schedule = plan::generate_pipeline(request);
      if (!schedule) {
        reason = schedule.error().message;
        continue;
      }
      rows.push_back({std::string(plan::schedule_name(kind)), "", std::move(*schedule)});
    }
  }
  if (rows.empty()) return fail(Code::kInvalidArgument, "nothing to compare: {}", reason);
  return rows;
}

Result<std::vector<ScheduleRow>> schedule_ablation(const MatrixRequest& matrix) {
  std::vector<ScheduleRow> rows;
  const auto add = [&](std::string name, std::string how, PipelineSchedule schedule) {
    rows.push_back({std::move(name), std::move(how), std::move(schedule)});
  };
  ScheduleRequest request = request_of(matrix, ScheduleKind::kMobius, OptimizerMode::kSync);
  choose_clipping(request);
  for (const int32_t resident : {1, 2}) {
    request.resident_stages = resident;
    JIGE_TRY(PipelineSchedule mobius, plan::generate_pipeline(request));
    add(resident == 1 ? "mobius, no prefetch" : "+ prefetch",
        resident == 1 ? "one stage resident: a fetch waits for the release before it"
                      : "two stages resident",
        std::move(mobius));
  }

  request = request_of(matrix, ScheduleKind::kSPipe, OptimizerMode::kSync);
  choose_clipping(request);
  request.lockstep = true;
  for (const bool fine : {false, true}) {
    request.backward_stages = fine ? matrix.backward_stages : matrix.forward_stages;
    JIGE_TRY(PipelineSchedule spipe, plan::generate_pipeline(request));
    add(fine ? "+ fine blocks" : "+ decoupled",
        fine ? "more backward stages than forward stages"
             : "backward stages on devices of their own; passes wait for checkpoints sent",
        std::move(spipe));
  }
  request.lockstep = false;
  JIGE_TRY(PipelineSchedule checkpoints, plan::generate_pipeline(request));
  add("+ async checkpoints", "only the recomputation waits for its checkpoint",
      std::move(checkpoints));
  request = request_of(matrix, ScheduleKind::kSPipe, OptimizerMode::kAsync);
  choose_clipping(request);
  JIGE_TRY(PipelineSchedule all, plan::generate_pipeline(request));
  add("+ async optimizer", "an update follows its gradient, not a barrier", std::move(all));
  return rows;
}

}  // namespace jige::cli
