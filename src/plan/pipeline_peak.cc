#include "plan/pipeline_peak.h"

#include <algorithm>
#include <array>
#include <map>

#include "base/bytes.h"
#include "plan/min_cut.h"

namespace jige::plan {
namespace {

// The states of one device's memory: for every task that begins or ends a buffer there, a node for
// its start and one for its end, and what must have happened before.
class DeviceStates {
 public:
  DeviceStates(const PipelineGraph& graph, const HappensBefore& order)
      : graph_(graph), order_(order) {}

  void add(const PipelineBuffer& buffer) {
    if (buffer.first < 0) return;
    changes_[buffer.first].starts += buffer.bytes;
    if (buffer.last >= 0) changes_[buffer.last].ends -= buffer.bytes;
  }

  ClosureProblem::Solution solve() {
    size_t node = 0;
    for (auto& [task, change] : changes_) {
      change.start_node = node++;
      change.end_node = node++;
      by_queue_[graph_.queue_index(task)].push_back(task);
    }
    for (auto& [queue, tasks] : by_queue_) {
      std::sort(tasks.begin(), tasks.end(),
                [&](int32_t a, int32_t b) { return graph_.position(a) < graph_.position(b); });
    }
    ClosureProblem problem(node);
    for (const auto& [task, change] : changes_) {
      problem.add_weight(change.start_node, change.starts);
      problem.add_weight(change.end_node, change.ends);
      problem.require(change.end_node, change.start_node);
      for (const auto& [queue, tasks] : by_queue_) {
        const int32_t ended = last_ended(task, queue, tasks);
        if (ended >= 0) problem.require(change.start_node, changes_.at(ended).end_node);
      }
    }
    return problem.solve();
  }

  // REQUIRES: solve() has numbered the nodes.
  bool alive(const PipelineBuffer& buffer, const std::vector<bool>& chosen) const {
    if (buffer.first < 0) return true;
    if (!chosen[changes_.at(buffer.first).start_node]) return false;
    return buffer.last < 0 || !chosen[changes_.at(buffer.last).end_node];
  }
  bool started(int32_t task, const std::vector<bool>& chosen) const {
    return chosen[changes_.at(task).start_node];
  }
  std::vector<int32_t> tasks() const {
    std::vector<int32_t> list;
    for (const auto& [task, change] : changes_) list.push_back(task);
    return list;
  }

 private:
  struct Change {
    int64_t starts = 0;
    int64_t ends = 0;
    size_t start_node = 0;
    size_t end_node = 0;
  };

  // The last of these tasks, of one queue, that has ended whenever `task` starts, or -1.
  int32_t last_ended(int32_t task, size_t queue, const std::vector<int32_t>& tasks) const {
    const int32_t count = order_.clock(task, queue);
    const auto past = std::partition_point(
        tasks.begin(), tasks.end(), [&](int32_t other) { return graph_.position(other) < count; });
    return past == tasks.begin() ? -1 : *(past - 1);
  }

  const PipelineGraph& graph_;
  const HappensBefore& order_;
  std::map<int32_t, Change> changes_;
  std::map<size_t, std::vector<int32_t>> by_queue_;
};

MemoryPeak peak_of(const PipelineSchedule& schedule, const PipelineGraph& graph,
                   const HappensBefore& order, const std::vector<PipelineBuffer>& buffers,
                   int32_t device) {
  DeviceStates states(graph, order);
  for (const PipelineBuffer& buffer : buffers) {
    if (buffer.device == device) states.add(buffer);
  }
  const ClosureProblem::Solution solution = states.solve();
  MemoryPeak peak{.device = device};
  for (size_t i = 0; i < buffers.size(); ++i) {
    if (buffers[i].device != device || !states.alive(buffers[i], solution.chosen)) continue;
    peak.bytes += buffers[i].bytes;
    peak.resident.push_back(i);
  }
  for (const int32_t task : states.tasks()) {
    const PipelineTask& what = schedule.tasks[static_cast<size_t>(task)];
    if (what.device != device || !is_pass(what.kind)) continue;
    if (!states.started(task, solution.chosen)) continue;
    if (peak.task < 0 || graph.position(task) > graph.position(peak.task)) peak.task = task;
  }
  return peak;
}

Status over_budget(const PipelineSchedule& schedule, const MemoryPeak& peak,
                   const std::vector<PipelineBuffer>& buffers, int64_t budget) {
  const std::string place =
      peak.device == kHostDevice ? "the host" : fmt::format("device {}", peak.device);
  const std::string moment =
      peak.task < 0 ? "" : fmt::format(" when {} has begun", describe_task(schedule, peak.task));
  return fail(Code::kExhausted,
              "{} can need {} bytes ({}){}, {} more than its budget of {}; resident then: {}",
              place, peak.bytes, format_bytes(peak.bytes), moment, peak.bytes - budget, budget,
              describe_resident(peak, buffers));
}

}  // namespace

int64_t PipelinePeaks::device_bytes_max() const {
  int64_t most = 0;
  for (const MemoryPeak& peak : devices) most = std::max(most, peak.bytes);
  return most;
}

int64_t PipelinePeaks::total_bytes() const {
  int64_t total = host.bytes;
  for (const MemoryPeak& peak : devices) total += peak.bytes;
  return total;
}

Result<PipelinePeaks> pipeline_peaks(const PipelineSchedule& schedule, const PipelineGraph& graph,
                                     const HappensBefore& order,
                                     const std::vector<PipelineBuffer>& buffers) {
  JIGE_DO(check_buffer_bytes(buffers));
  PipelinePeaks peaks;
  for (int32_t d = 0; d < schedule.device_count; ++d) {
    peaks.devices.push_back(peak_of(schedule, graph, order, buffers, d));
  }
  peaks.host = peak_of(schedule, graph, order, buffers, kHostDevice);
  return peaks;
}

Status check_budgets(const PipelineSchedule& schedule, const PipelinePeaks& peaks,
                     const std::vector<PipelineBuffer>& buffers, const MemoryBudget& budget) {
  for (size_t d = 0; d < peaks.devices.size(); ++d) {
    if (peaks.devices[d].bytes > budget.of(d)) {
      return over_budget(schedule, peaks.devices[d], buffers, budget.of(d));
    }
  }
  if (peaks.host.bytes > budget.host_bytes) {
    return over_budget(schedule, peaks.host, buffers, budget.host_bytes);
  }
  if (peaks.total_bytes() > budget.total_bytes) {
    return fail(
        Code::kExhausted,
        "devices and host need {} bytes in all ({}), {} more than the memory they share has",
        peaks.total_bytes(), format_bytes(peaks.total_bytes()),
        peaks.total_bytes() - budget.total_bytes);
  }
  return {};
}

std::string describe_resident(const MemoryPeak& peak, const std::vector<PipelineBuffer>& buffers) {
  std::array<int64_t, kBufferKindCount> bytes{};
  std::array<int32_t, kBufferKindCount> counts{};
  for (const size_t i : peak.resident) {
    bytes[static_cast<size_t>(buffers[i].kind)] += buffers[i].bytes;
    ++counts[static_cast<size_t>(buffers[i].kind)];
  }
  std::string text;
  for (size_t k = 0; k < counts.size(); ++k) {
    if (counts[k] == 0) continue;
    if (!text.empty()) text += ", ";
    text += fmt::format("{} {} ({})", buffer_name(static_cast<BufferKind>(k)),
                        format_bytes(bytes[k]), counts[k]);
  }
  return text.empty() ? "nothing" : text;
}

}  // namespace jige::plan
