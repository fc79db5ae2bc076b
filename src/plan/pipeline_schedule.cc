#include "plan/pipeline_schedule.h"

#include <map>
#include <tuple>

#include "base/check.h"
#include "base/counted.h"

namespace jige::plan {

bool is_send(TaskKind kind) {
  return kind == TaskKind::kSendActivation || kind == TaskKind::kSendGradient ||
         kind == TaskKind::kCheckpointSend;
}

bool is_receive(TaskKind kind) {
  return kind == TaskKind::kReceiveActivation || kind == TaskKind::kReceiveGradient ||
         kind == TaskKind::kCheckpointReceive;
}

TaskKind receive_of(TaskKind send) {
  switch (send) {
    case TaskKind::kSendActivation:
      return TaskKind::kReceiveActivation;
    case TaskKind::kSendGradient:
      return TaskKind::kReceiveGradient;
    default:
      JIGE_CHECK(send == TaskKind::kCheckpointSend, "{} sends nothing", kind_name(send));
      return TaskKind::kCheckpointReceive;
  }
}

bool is_pass(TaskKind kind) {
  return kind == TaskKind::kForward || kind == TaskKind::kRecompute ||
         kind == TaskKind::kBackwardInput || kind == TaskKind::kBackwardWeight;
}

QueueKind queue_of(const PipelineSchedule& schedule, TaskKind kind) {
  if (is_send(kind)) return QueueKind::kSend;
  if (is_receive(kind)) return QueueKind::kReceive;
  switch (kind) {
    case TaskKind::kFetch:
      return QueueKind::kFetch;
    case TaskKind::kGradientOffload:
      return QueueKind::kOffload;
    case TaskKind::kOptimizerStep:
      return schedule.optimizer == OptimizerMode::kDevice ? QueueKind::kCompute
                                                          : QueueKind::kOptimizer;
    case TaskKind::kBarrier:
      return QueueKind::kHost;
    default:
      return QueueKind::kCompute;
  }
}

std::string_view kind_name(TaskKind kind) {
  static constexpr std::string_view kNames[kTaskKindCount] = {"fetch",
                                                              "release",
                                                              "F",
                                                              "R",
                                                              "X",
                                                              "W",
                                                              "send-activation",
                                                              "recv-activation",
                                                              "send-gradient",
                                                              "recv-gradient",
                                                              "send-checkpoint",
                                                              "recv-checkpoint",
                                                              "offload",
                                                              "optimizer",
                                                              "barrier"};
  return kNames[static_cast<size_t>(kind)];
}

std::string_view queue_name(QueueKind queue) {
  static constexpr std::string_view kNames[] = {"compute", "fetch",     "offload", "send",
                                                "receive", "optimizer", "host"};
  return kNames[static_cast<size_t>(queue)];
}

std::string_view optimizer_name(OptimizerMode mode) {
  static constexpr std::string_view kNames[] = {"device", "sync", "async"};
  return kNames[static_cast<size_t>(mode)];
}

std::string_view clip_name(ClipMode mode) {
  static constexpr std::string_view kNames[] = {"none", "exact", "speculate"};
  return kNames[static_cast<size_t>(mode)];
}

namespace {

std::string describe_work(const PipelineTask& task) {
  std::string text{kind_name(task.kind)};
  if (task.kind == TaskKind::kBarrier) return text;
  if (is_send(task.kind) || is_receive(task.kind)) {
    text += fmt::format(" boundary {}", task.blocks.begin);
  } else if (task.blocks.size() == 1) {
    text += fmt::format(" block {}", task.blocks.begin);
  } else {
    text += fmt::format(" blocks {}-{}", task.blocks.begin, task.blocks.end - 1);
  }
  if (task.micro_batch >= 0) text += fmt::format(", micro-batch {}", task.micro_batch);
  if (is_send(task.kind)) text += fmt::format(", to device {}", task.peer);
  if (is_receive(task.kind)) text += fmt::format(", from device {}", task.peer);
  return text;
}

}  // namespace

std::string describe_task(const PipelineSchedule& schedule, int32_t task) {
  const PipelineTask& what = schedule.tasks[static_cast<size_t>(task)];
  std::string text = fmt::format("#{} {}", task, describe_work(what));
  if (what.device >= 0) text += fmt::format(" on device {}", what.device);
  return text;
}

std::string to_text(const PipelineSchedule& schedule) {
  std::string text = fmt::format(
      "{}: {}, {}, {}; parameters on the {}; recompute {}; optimizer {}; clipping {}\n",
      schedule.name, counted(schedule.device_count, "device"),
      counted(schedule.micro_batch_count, "micro-batch"), counted(schedule.block_count, "block"),
      schedule.host_parameters ? "host" : "device", schedule.recompute ? "on" : "off",
      optimizer_name(schedule.optimizer), clip_name(schedule.clip));
  std::map<std::tuple<int32_t, QueueKind, int32_t>, std::vector<int32_t>> queues;
  for (size_t i = 0; i < schedule.tasks.size(); ++i) {
    const PipelineTask& task = schedule.tasks[i];
    const QueueKind queue = queue_of(schedule, task.kind);
    const int32_t peer = queue == QueueKind::kReceive ? task.peer : -1;
    queues[{task.device, queue, peer}].push_back(static_cast<int32_t>(i));
  }
  for (const auto& [key, tasks] : queues) {
    const auto& [device, queue, peer] = key;
    text += device < 0 ? std::string("\n") : fmt::format("\ndevice {}, ", device);
    text += queue_name(queue);
    text += peer < 0 ? std::string("\n") : fmt::format(" from device {}\n", peer);
    for (const int32_t id : tasks) {
      const PipelineTask& task = schedule.tasks[static_cast<size_t>(id)];
      text += fmt::format("  #{} {}", id, describe_work(task));
      if (!task.after.empty()) text += fmt::format("  after #{}", fmt::join(task.after, " #"));
      text += "\n";
    }
  }
  return text;
}

}  // namespace jige::plan
