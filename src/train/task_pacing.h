// Timed devices: a task holds its queue for as long as the costs say it takes, instead of being
// computed. So a schedule can be run on a machine that there is not, and its timing compared with
// what was predicted (plan/pipeline_simulate.h).
//
//   const int64_t begun_ns = pacing.begin(task, pacing.now_ns());
//   …                                          // copies move their bytes
//   pacing.hold(task, begun_ns);               // until the task's time is over
//
// Copies are links with a limited rate: their bytes move first, then the queue is held until
// bytes / rate and the latency are over.
//
// A queue is like a stream of a device: what was ready in time begins when the task before it ends,
// even if the thread that plays the queue wakes up late. From one queue to another an end counts
// when its thread has seen it, so handing over costs what it costs. Holding sleeps and never spins:
// many queues share few cores.
// Threads: begin() and hold() of a queue's tasks from one thread; a task begins after its
// predecessors have ended, and what they wrote is visible.
#pragma once

#include <cstdint>
#include <vector>

#include "plan/pipeline_costs.h"
#include "plan/pipeline_graph.h"
#include "plan/pipeline_schedule.h"

namespace jige::train {

class TaskPacing {
 public:
  // The graph must outlive it. REQUIRES: plan::check_costs(costs).
  TaskPacing(const plan::PipelineSchedule& schedule, const plan::PipelineGraph& graph,
             const plan::PipelineCosts& costs);

  // How long a task takes, rounded up; 0 for what only waits.
  int64_t duration_ns(int32_t task) const { return durations_ns_[static_cast<size_t>(task)]; }
  // The monotonic clock that hold() goes by.
  int64_t now_ns() const;
  // When a task began that its thread starts at `now_ns`: when the last thing that it waited for
  // ended, `now_ns` where there is none.
  int64_t begin(int32_t task, int64_t now_ns) const;
  // Sleeps until a task that began at `begun_ns` is over, if it is not yet, and notes its end. To
  // be called when its bytes have moved.
  void hold(int32_t task, int64_t begun_ns);

  // What hold() does, without clock. When a task is over whose bytes had moved at `moved_ns`:
  int64_t due(int32_t task, int64_t begun_ns, int64_t moved_ns) const;
  struct End {
    int64_t due_ns = 0;   // counts in its own queue
    int64_t seen_ns = 0;  // counts in others: when the thread saw it
  };
  void end(int32_t task, const End& end) { ends_[static_cast<size_t>(task)] = end; }

 private:
  const plan::PipelineGraph* graph_;
  std::vector<int64_t> durations_ns_;
  std::vector<End> ends_;
};

// Sleeps until the monotonic clock reads `deadline_ns`, with a timer of the finest grain.
void sleep_until_ns(int64_t deadline_ns);

}  // namespace jige::train
