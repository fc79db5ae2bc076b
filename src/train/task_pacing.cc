#include "train/task_pacing.h"

#include <sys/prctl.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <thread>

#include "base/clock.h"

namespace jige::train {

TaskPacing::TaskPacing(const plan::PipelineSchedule& schedule, const plan::PipelineGraph& graph,
                       const plan::PipelineCosts& costs)
    : graph_(&graph), ends_(schedule.tasks.size()) {
  for (const plan::PipelineTask& task : schedule.tasks) {
    const double seconds = plan::task_seconds(schedule, costs, task);
    durations_ns_.push_back(static_cast<int64_t>(std::ceil(seconds * 1e9)));
  }
}

int64_t TaskPacing::now_ns() const { return RealClock().now_ns(); }

int64_t TaskPacing::begin(int32_t task, int64_t now_ns) const {
  const auto predecessors = graph_->predecessors(task);
  if (predecessors.empty()) return now_ns;
  int64_t ready_ns = 0;
  for (const int32_t before : predecessors) {
    const End& end = ends_[static_cast<size_t>(before)];
    const bool same_queue = graph_->queue_index(before) == graph_->queue_index(task);
    ready_ns = std::max(ready_ns, same_queue ? end.due_ns : end.seen_ns);
  }
  return std::min(ready_ns, now_ns);
}

void TaskPacing::hold(int32_t task, int64_t begun_ns) {
  const int64_t due_ns = due(task, begun_ns, now_ns());
  if (duration_ns(task) > 0) sleep_until_ns(due_ns);
  end(task, {.due_ns = due_ns, .seen_ns = now_ns()});
}

int64_t TaskPacing::due(int32_t task, int64_t begun_ns, int64_t moved_ns) const {
  if (duration_ns(task) == 0) return begun_ns;
  return std::max(begun_ns + duration_ns(task), moved_ns);
}

void sleep_until_ns(int64_t deadline_ns) {
  // By default the kernel may end a thread's sleep 50 us late, to end several at once.
  thread_local const int precise = prctl(PR_SET_TIMERSLACK, 1UL);
  static_cast<void>(precise);
  const std::chrono::nanoseconds deadline(deadline_ns);
  std::this_thread::sleep_until(std::chrono::steady_clock::time_point(
      std::chrono::duration_cast<std::chrono::steady_clock::duration>(deadline)));
}

}  // namespace jige::train
