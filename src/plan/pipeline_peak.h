// The most memory a schedule can need, over every run that respects its queues and dependencies.
//
// Which buffers are alive depends on how far each queue has come, and that on times nobody
// promises. So the peak is taken over all reachable states: sets of started and ended tasks closed
// under "before". A buffer adds its bytes when its first task starts and takes them away when its
// last has ended; the heaviest closed set is a minimum cut. A simulated peak never exceeds it, an
// executor's neither.
//
//   const std::vector<PipelineBuffer> buffers = pipeline_buffers(schedule, costs);
//   JIGE_TRY(const PipelinePeaks peaks, pipeline_peaks(schedule, graph, order, buffers));
//   JIGE_DO(check_budgets(schedule, peaks, buffers, {.device_bytes = 8 << 30}));
//
// Threads: pure functions.
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "base/result.h"
#include "plan/pipeline_graph.h"
#include "plan/pipeline_memory.h"
#include "plan/pipeline_schedule.h"

namespace jige::plan {

struct MemoryPeak {
  int32_t device = kHostDevice;
  int64_t bytes = 0;
  std::vector<size_t> resident;  // the buffers alive at that moment
  int32_t task = -1;             // the device's last pass begun by then, or -1
};

struct PipelinePeaks {
  std::vector<MemoryPeak> devices;
  MemoryPeak host;
  int64_t device_bytes_max() const;
  int64_t total_bytes() const;  // of all devices and the host
};

struct MemoryBudget {
  int64_t device_bytes = std::numeric_limits<int64_t>::max();  // of each device
  std::vector<int64_t> own_bytes;  // of each device, where they are unequal; else empty
  int64_t host_bytes = std::numeric_limits<int64_t>::max();
  int64_t total_bytes = std::numeric_limits<int64_t>::max();  // where devices and host share memory

  int64_t of(size_t device) const { return own_bytes.empty() ? device_bytes : own_bytes[device]; }
};

// Fails as check_buffer_bytes.
Result<PipelinePeaks> pipeline_peaks(const PipelineSchedule& schedule, const PipelineGraph& graph,
                                     const HappensBefore& order,
                                     const std::vector<PipelineBuffer>& buffers);

// Fails with kExhausted, naming the device, the bytes missing, the moment and what is resident.
Status check_budgets(const PipelineSchedule& schedule, const PipelinePeaks& peaks,
                     const std::vector<PipelineBuffer>& buffers, const MemoryBudget& budget);

// "parameters 1.2 GiB (2), saved activations 300 MiB (4) …": what is resident, by kind, the number
// of buffers in brackets.
std::string describe_resident(const MemoryPeak& peak, const std::vector<PipelineBuffer>& buffers);

}  // namespace jige::plan
