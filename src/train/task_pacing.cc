#include "train/task_pacing.h"

#include <sys/prctl.h>

#include <chrono>
#include <cmath>
#include <thread>

#include "base/clock.h"

namespace jige::train {

TaskPacing::TaskPacing(const plan::PipelineSchedule& schedule, const plan::PipelineCosts& costs) {
  for (const plan::PipelineTask& task : schedule.tasks) {
    const double seconds = plan::task_seconds(schedule, costs, task);
    durations_ns_.push_back(static_cast<int64_t>(std::ceil(seconds * 1e9)));
  }
}

int64_t TaskPacing::now_ns() const { return RealClock().now_ns(); }

void TaskPacing::hold(int32_t task, int64_t begun_ns) const {
  if (duration_ns(task) > 0) sleep_until_ns(begun_ns + duration_ns(task));
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
