#include "cli/schedule_matrix.h"

#include <algorithm>
#include <utility>

#include "plan/pipeline_lower.h"

namespace jige::cli {

using plan::OptimizerMode;
using plan::PipelineSchedule;
using plan::PipelineTask;
using plan::ScheduleKind;
using plan::ScheduleRequest;
using plan::TaskKind;

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
  JIGE_TRY(PipelineSchedule mobius, plan::generate_pipeline(request));
  JIGE_TRY(const plan::PipelineOrder order, plan::pipeline_order(request));
  PipelineSchedule unfetched = mobius;
  plan::lower_pipeline(order, 1, unfetched);
  add("mobius, no prefetch", "one stage resident: a fetch waits for the release before it",
      std::move(unfetched));
  add("+ prefetch", "two stages resident", std::move(mobius));

  request = request_of(matrix, ScheduleKind::kSPipe, OptimizerMode::kSync);
  choose_clipping(request);
  for (const bool fine : {false, true}) {
    request.backward_stages = fine ? matrix.backward_stages : matrix.forward_stages;
    JIGE_TRY(PipelineSchedule spipe, plan::generate_pipeline(request));
    wait_for_checkpoints(spipe);
    add(fine ? "+ fine blocks" : "+ decoupled",
        fine ? "more backward stages than forward stages"
             : "backward stages on devices of their own; passes wait for checkpoints sent",
        std::move(spipe));
  }
  JIGE_TRY(PipelineSchedule checkpoints, plan::generate_pipeline(request));
  add("+ async checkpoints", "only the recomputation waits for its checkpoint",
      std::move(checkpoints));
  request = request_of(matrix, ScheduleKind::kSPipe, OptimizerMode::kAsync);
  choose_clipping(request);
  JIGE_TRY(PipelineSchedule all, plan::generate_pipeline(request));
  add("+ async optimizer", "an update follows its gradient, not a barrier", std::move(all));
  return rows;
}

void wait_for_checkpoints(PipelineSchedule& schedule) {
  // The steps of a device: its F, then its R with the X and W behind. Device d runs its n-th at
  // step n + d of a timetable that all share.
  std::vector<std::vector<int32_t>> steps(static_cast<size_t>(schedule.device_count));
  std::vector<int32_t> number(schedule.tasks.size(), 0);
  const auto count = static_cast<int32_t>(schedule.tasks.size());
  for (int32_t i = 0; i < count; ++i) {
    const PipelineTask& task = schedule.tasks[static_cast<size_t>(i)];
    if (task.kind != TaskKind::kForward && task.kind != TaskKind::kRecompute) continue;
    std::vector<int32_t>& own = steps[static_cast<size_t>(task.device)];
    number[static_cast<size_t>(i)] = static_cast<int32_t>(own.size());
    own.push_back(i);
  }
  const auto make_wait = [&](int32_t device, int32_t n, int32_t task) {
    const std::vector<int32_t>& own = steps[static_cast<size_t>(device)];
    if (n >= static_cast<int32_t>(own.size())) return;
    schedule.tasks[static_cast<size_t>(own[static_cast<size_t>(std::max(n, 0))])].after.push_back(
        task);
  };
  for (int32_t i = 0; i < count; ++i) {
    const PipelineTask task = schedule.tasks[static_cast<size_t>(i)];
    if (task.kind != TaskKind::kCheckpointSend) continue;
    // The F that makes the checkpoint is the first thing a send waits for; its receive is behind.
    const int32_t n = number[static_cast<size_t>(task.after.front())];
    make_wait(task.device, n + 1, i);
    make_wait(task.peer, n + 1 + task.device - task.peer, i + 1);
  }
}

}  // namespace jige::cli
