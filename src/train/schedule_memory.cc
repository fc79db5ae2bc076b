#include "train/schedule_memory.h"

#include <utility>

#include "base/check.h"

namespace jige::train {

Result<ScheduleMemory> ScheduleMemory::create(std::vector<plan::PipelineBuffer> buffers,
                                              size_t task_count, std::vector<Arena*> arenas) {
  ScheduleMemory memory;
  memory.buffers_ = std::move(buffers);
  memory.arenas_ = std::move(arenas);
  memory.tensors_.resize(memory.buffers_.size());
  memory.begins_.resize(task_count);
  memory.ends_.resize(task_count);
  for (size_t i = 0; i < memory.buffers_.size(); ++i) {
    const plan::PipelineBuffer& buffer = memory.buffers_[i];
    const std::tuple place{buffer.kind, buffer.user >= 0 ? buffer.user : buffer.device,
                           buffer.blocks.begin};
    const bool fresh =
        (buffer.user >= 0 ? memory.by_user_ : memory.lasting_).emplace(place, i).second;
    JIGE_CHECK(fresh, "two buffers of {} at block {}", plan::buffer_name(buffer.kind),
               buffer.blocks.begin);
    if (buffer.last >= 0) {
      memory.ends_[static_cast<size_t>(buffer.last)].push_back(static_cast<int32_t>(i));
    }
    if (buffer.first >= 0) {
      memory.begins_[static_cast<size_t>(buffer.first)].push_back(static_cast<int32_t>(i));
      continue;
    }
    Arena& arena = *memory.arenas_[static_cast<size_t>(buffer.device)];
    JIGE_TRY(memory.tensors_[i], arena.make(DType::kU8, Shape{buffer.bytes}));
  }
  return memory;
}

Status ScheduleMemory::acquire(int32_t task) {
  for (const int32_t id : begins_[static_cast<size_t>(task)]) {
    const auto i = static_cast<size_t>(id);
    Arena& arena = *arenas_[static_cast<size_t>(buffers_[i].device)];
    JIGE_TRY(tensors_[i], arena.make(DType::kU8, Shape{buffers_[i].bytes}));
  }
  return {};
}

void ScheduleMemory::release(int32_t task) {
  for (const int32_t id : ends_[static_cast<size_t>(task)]) {
    tensors_[static_cast<size_t>(id)] = Tensor();
  }
}

void ScheduleMemory::release_all() {
  for (size_t i = 0; i < buffers_.size(); ++i) {
    if (buffers_[i].first >= 0) tensors_[i] = Tensor();
  }
}

TensorView ScheduleMemory::view(plan::BufferKind kind, int32_t user, int32_t block) const {
  const auto found = by_user_.find({kind, user, block});
  if (found == by_user_.end()) return {};
  const Tensor& tensor = tensors_[found->second];
  JIGE_CHECK(bool(tensor), "the {} of task {} at block {} are not there now",
             plan::buffer_name(kind), user, block);
  return tensor.view();
}

TensorView ScheduleMemory::lasting(plan::BufferKind kind, int32_t device, int32_t block) const {
  const auto found = lasting_.find({kind, device, block});
  return found == lasting_.end() ? TensorView{} : tensors_[found->second].view();
}

}  // namespace jige::train
