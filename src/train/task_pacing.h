// Timed devices: a task holds its queue for as long as the costs say it takes, instead of being
// computed. So a schedule can be run on a machine that there is not, and its timing compared with
// what was predicted (plan/pipeline_simulate.h).
//
//   const int64_t begun_ns = pacing.now_ns();
//   …                                          // copies move their bytes
//   pacing.hold(task, begun_ns);               // until the rest of the task's time is over
//
// Copies are links with a limited rate: their bytes move first, then the queue is held until
// bytes / rate and the latency are over. Holding sleeps and never spins, so many queues share few
// cores; a late awakening makes a task longer, never shorter.
// Threads: hold() from any thread.
#pragma once

#include <cstdint>
#include <vector>

#include "plan/pipeline_costs.h"
#include "plan/pipeline_schedule.h"

namespace jige::train {

class TaskPacing {
 public:
  // REQUIRES: plan::check_costs(costs).
  TaskPacing(const plan::PipelineSchedule& schedule, const plan::PipelineCosts& costs);

  // How long a task takes, rounded up; 0 for what only waits.
  int64_t duration_ns(int32_t task) const { return durations_ns_[static_cast<size_t>(task)]; }
  // The monotonic clock that hold() goes by.
  int64_t now_ns() const;
  // Returns when a task that began at `begun_ns` is over; at once where it is over already.
  void hold(int32_t task, int64_t begun_ns) const;

 private:
  std::vector<int64_t> durations_ns_;
};

// Sleeps until the monotonic clock reads `deadline_ns`, with a timer of the finest grain.
void sleep_until_ns(int64_t deadline_ns);

}  // namespace jige::train
