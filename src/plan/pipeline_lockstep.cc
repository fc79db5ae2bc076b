#include "plan/pipeline_lockstep.h"

#include <algorithm>

namespace jige::plan {

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

}  // namespace jige::plan
