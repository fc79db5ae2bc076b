#include "plan/pipeline_simulate.h"

#include <algorithm>

namespace jige::plan {

PipelineTimes time_tasks(const PipelineSchedule& schedule, const PipelineGraph& graph,
                         const PipelineCosts& costs) {
  PipelineTimes times;
  times.start.assign(graph.task_count(), 0);
  times.end.assign(graph.task_count(), 0);
  for (const int32_t task : graph.topological_order()) {
    const auto i = static_cast<size_t>(task);
    for (const int32_t id : graph.predecessors(task)) {
      times.start[i] = std::max(times.start[i], times.end[static_cast<size_t>(id)]);
    }
    times.end[i] = times.start[i] + task_seconds(schedule, costs, schedule.tasks[i]);
    times.step_s = std::max(times.step_s, times.end[i]);
  }
  return times;
}

namespace {

class TimeSplit {
 public:
  TimeSplit(const PipelineSchedule& schedule, const PipelineGraph& graph,
            const PipelineTimes& times)
      : schedule_(schedule), graph_(graph), times_(times) {}

  DeviceTime split(int32_t device) const {
    DeviceTime time;
    double free_since = 0;
    bool first = true;
    for (const PipelineQueue& queue : graph_.queues()) {
      if (queue.device != device || queue.kind != QueueKind::kCompute) continue;
      for (const int32_t task : queue.tasks) {
        if (!is_pass(kind(task))) continue;
        explain(task, free_since, first ? time.ramp_s : time.turn_s, time);
        time.busy_s += end(task) - start(task);
        free_since = end(task);
        first = false;
      }
    }
    explain_end(free_since, time);
    return time;
  }

 private:
  TaskKind kind(int32_t task) const { return schedule_.tasks[static_cast<size_t>(task)].kind; }
  double start(int32_t task) const { return times_.start[static_cast<size_t>(task)]; }
  double end(int32_t task) const { return times_.end[static_cast<size_t>(task)]; }

  // The predecessor that a task waited for longest.
  int32_t awaited(int32_t task) const {
    int32_t latest = -1;
    for (const int32_t id : graph_.predecessors(task)) {
      if (latest < 0 || end(id) > end(latest)) latest = id;
    }
    return latest;
  }

  // Ascribes the wait [since, start of task) along the chain of what was awaited.
  void explain(int32_t task, double since, double& passes, DeviceTime& time) const {
    while (task >= 0 && start(task) > since) {
      const int32_t before = awaited(task);
      // What had ended by then was no reason to wait; measured tasks may start late all the same.
      if (before < 0 || end(before) <= since) return;
      part_of(before, passes, time) += end(before) - std::max(since, start(before));
      task = before;
    }
  }

  // The wait from the last pass of a device to the end of the step.
  void explain_end(double since, DeviceTime& time) const {
    int32_t last = -1;
    for (int32_t i = 0; i < static_cast<int32_t>(graph_.task_count()); ++i) {
      if (last < 0 || end(i) > end(last)) last = i;
    }
    if (last < 0 || end(last) <= since) return;
    part_of(last, time.ramp_s, time) += end(last) - std::max(since, start(last));
    explain(last, since, time.ramp_s, time);
  }

  double& part_of(int32_t task, double& passes, DeviceTime& time) const {
    if (is_pass(kind(task))) return passes;
    return kind(task) == TaskKind::kOptimizerStep ? time.optimizer_s : time.transfer_s;
  }

  const PipelineSchedule& schedule_;
  const PipelineGraph& graph_;
  const PipelineTimes& times_;
};

}  // namespace

std::vector<DeviceTime> split_device_time(const PipelineSchedule& schedule,
                                          const PipelineGraph& graph, const PipelineTimes& times) {
  const TimeSplit split(schedule, graph, times);
  std::vector<DeviceTime> devices;
  for (int32_t d = 0; d < schedule.device_count; ++d) devices.push_back(split.split(d));
  return devices;
}

double bubble_fraction(const std::vector<DeviceTime>& devices) {
  double idle = 0, total = 0;
  for (const DeviceTime& device : devices) {
    idle += device.idle_s();
    total += device.idle_s() + device.busy_s;
  }
  return total > 0 ? idle / total : 0;
}

double tail_seconds(const PipelineSchedule& schedule, const PipelineTimes& times) {
  double last = 0;
  for (size_t i = 0; i < schedule.tasks.size(); ++i) {
    if (is_pass(schedule.tasks[i].kind)) last = std::max(last, times.end[i]);
  }
  return times.step_s - last;
}

std::vector<MemoryPoint> memory_over_time(const PipelineGraph& graph, const PipelineTimes& times,
                                          const std::vector<PipelineBuffer>& buffers,
                                          int32_t device) {
  // At one moment: what has run ends first, then tasks that begin, in an order they could run in.
  struct Change {
    double time_s;
    int64_t order;
    int64_t bytes;
  };
  std::vector<int64_t> rank(graph.task_count());
  const auto& sorted = graph.topological_order();
  for (size_t i = 0; i < sorted.size(); ++i) {
    rank[static_cast<size_t>(sorted[i])] = static_cast<int64_t>(i);
  }
  std::vector<Change> changes;
  int64_t bytes = 0;
  for (const PipelineBuffer& buffer : buffers) {
    if (buffer.device != device) continue;
    if (buffer.first < 0) {
      bytes += buffer.bytes;
      continue;
    }
    const auto first = static_cast<size_t>(buffer.first);
    changes.push_back({times.start[first], 2 * rank[first], buffer.bytes});
    if (buffer.last < 0) continue;
    const auto last = static_cast<size_t>(buffer.last);
    const bool instant = times.start[last] == times.end[last];
    changes.push_back({times.end[last], instant ? 2 * rank[last] + 1 : -1, -buffer.bytes});
  }
  std::sort(changes.begin(), changes.end(), [](const Change& a, const Change& b) {
    return a.time_s != b.time_s ? a.time_s < b.time_s : a.order < b.order;
  });
  std::vector<MemoryPoint> points{{0, bytes}};
  for (const Change& change : changes) {
    bytes += change.bytes;
    points.push_back({change.time_s, bytes});
  }
  return points;
}

int64_t simulated_peak(const std::vector<MemoryPoint>& points) {
  int64_t peak = 0;
  for (const MemoryPoint& point : points) peak = std::max(peak, point.bytes);
  return peak;
}

}  // namespace jige::plan
