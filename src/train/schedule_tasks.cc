#include "train/schedule_tasks.h"

#include "base/check.h"

namespace jige::train {

std::vector<Task> one_device_tasks(size_t node_count, size_t micro_batch_count) {
  JIGE_CHECK(node_count >= 2, "a model of {} nodes has no head", node_count);
  std::vector<Task> tasks;
  tasks.reserve(micro_batch_count * (3 * node_count - 2));
  const auto head = static_cast<int32_t>(node_count) - 1;
  for (int32_t batch = 0; batch < static_cast<int32_t>(micro_batch_count); ++batch) {
    for (int32_t node = 0; node < head; ++node)
      tasks.push_back({StepTaskKind::kForward, node, batch});
    tasks.push_back({StepTaskKind::kHeadPass, head, batch});
    for (int32_t node = head - 1; node >= 0; --node) {
      tasks.push_back({StepTaskKind::kBackwardInput, node, batch});
      tasks.push_back({StepTaskKind::kBackwardWeight, node, batch});
    }
  }
  return tasks;
}

TwoPassTasks two_pass_tasks(size_t node_count) {
  const std::vector<Task> whole = one_device_tasks(node_count, 1);
  const auto head = static_cast<int32_t>(node_count) - 1;
  TwoPassTasks tasks{.forward = {whole.begin(), whole.begin() + head},
                     .backward = {whole.begin() + head, whole.end()}};
  tasks.forward.push_back({StepTaskKind::kForward, head, 0});
  return tasks;
}

}  // namespace jige::train
