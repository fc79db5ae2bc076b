// Times a schedule: when every task starts and ends if it takes what the costs say, how long the
// step is, and what devices wait for. Nothing here has been measured.
//
//   JIGE_TRY(const PipelineGraph graph, PipelineGraph::create(schedule));
//   const PipelineTimes times = time_tasks(schedule, graph, costs);
//   const std::vector<DeviceTime> devices = split_device_time(schedule, graph, times);
//
// Queues and dependencies fix everything but the times, so a step is the longest path through the
// graph; no event queue is needed. Queues do not slow one another down.
// Threads: pure functions.
#pragma once

#include <cstdint>
#include <vector>

#include "plan/pipeline_costs.h"
#include "plan/pipeline_graph.h"
#include "plan/pipeline_memory.h"
#include "plan/pipeline_schedule.h"

namespace jige::plan {

struct PipelineTimes {
  std::vector<double> start, end;  // of every task
  double step_s = 0;
};

// REQUIRES: check_costs(costs).
PipelineTimes time_tasks(const PipelineSchedule& schedule, const PipelineGraph& graph,
                         const PipelineCosts& costs);

// Where a device's time goes; the parts add up to the step where tasks start as soon as they can,
// as simulated ones do. A wait has the cause of what was being waited for: the chain of tasks that
// ends where the wait ends. What measured tasks start later than that has no part.
struct DeviceTime {
  double busy_s = 0;       // F, R, X, W
  double ramp_s = 0;       // other devices' passes, before the first or after the last pass here
  double turn_s = 0;       // other devices' passes, in between
  double transfer_s = 0;   // fetches, gradients on their way, messages
  double optimizer_s = 0;  // optimizer steps, wherever they run
  double idle_s() const { return ramp_s + turn_s + transfer_s + optimizer_s; }
};

std::vector<DeviceTime> split_device_time(const PipelineSchedule& schedule,
                                          const PipelineGraph& graph, const PipelineTimes& times);

// Idle part of all devices' time, 0 to 1.
double bubble_fraction(const std::vector<DeviceTime>& devices);

// Time behind the last pass of all devices.
double tail_seconds(const PipelineSchedule& schedule, const PipelineTimes& times);

// Bytes in use on a device (or kHostDevice) after each change, in this timing.
struct MemoryPoint {
  double time_s = 0;
  int64_t bytes = 0;
};
// REQUIRES: check_buffer_bytes(buffers).
std::vector<MemoryPoint> memory_over_time(const PipelineGraph& graph, const PipelineTimes& times,
                                          const std::vector<PipelineBuffer>& buffers,
                                          int32_t device);
int64_t simulated_peak(const std::vector<MemoryPoint>& points);

}  // namespace jige::plan
