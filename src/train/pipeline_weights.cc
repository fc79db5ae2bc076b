#include "train/pipeline_weights.h"

#include <algorithm>
#include <map>

#include "base/check.h"
#include "model/weights_copy.h"

namespace jige::train {

using plan::BufferKind;
using plan::TaskKind;

PipelineWeights::PipelineWeights(const plan::PipelineSchedule& schedule,
                                 const plan::PipelineGraph& graph,
                                 const plan::PipelinePasses& passes,
                                 const model::ModelWeights& weights, const ScheduleMemory& memory)
    : schedule_(&schedule),
      passes_(&passes),
      weights_(&weights),
      memory_(&memory),
      own_(schedule.optimizer == plan::OptimizerMode::kDevice) {
  visit_.assign(schedule.tasks.size(), -1);
  if (schedule.host_parameters) {
    find_visits(graph);
  } else {
    find_lasting();
  }
}

void PipelineWeights::find_visits(const plan::PipelineGraph& graph) {
  const plan::HappensBefore order(graph);
  const auto count = static_cast<int32_t>(schedule_->tasks.size());
  std::map<std::pair<int32_t, plan::BlockRange>, std::vector<int32_t>> fetches;
  for (int32_t i = 0; i < count; ++i) {
    if (at(i).kind == TaskKind::kFetch) fetches[{at(i).device, at(i).blocks}].push_back(i);
  }
  for (int32_t i = 0; i < count; ++i) {
    if (!plan::is_pass(at(i).kind)) continue;
    // A device holds one copy of a stage at a time: the last one fetched before is there.
    for (const int32_t fetch : fetches[{at(i).device, at(i).blocks}]) {
      if (order.before(fetch, i)) visit_[static_cast<size_t>(i)] = fetch;
    }
  }
}

void PipelineWeights::find_lasting() {
  lasting_begin_.resize(static_cast<size_t>(schedule_->block_count));
  lasting_device_.resize(static_cast<size_t>(schedule_->block_count));
  for (int32_t b = 0; b < schedule_->block_count; ++b) {
    const plan::PipelineTask& forward = at(passes_->pass(TaskKind::kForward, b, 0));
    lasting_begin_[static_cast<size_t>(b)] = forward.blocks.begin;
    lasting_device_[static_cast<size_t>(b)] = forward.device;
  }
}

TensorView PipelineWeights::copy_of(int32_t task, int32_t block) const {
  int32_t begin = 0;
  TensorView buffer;
  if (schedule_->host_parameters) {
    const int32_t fetch =
        at(task).kind == TaskKind::kFetch ? task : visit_[static_cast<size_t>(task)];
    begin = at(fetch).blocks.begin;
    buffer = memory_->view(BufferKind::kParameters, fetch, begin);
  } else {
    begin = lasting_begin_[static_cast<size_t>(block)];
    buffer = memory_->lasting(BufferKind::kParameters, lasting_device_[static_cast<size_t>(block)],
                              begin);
  }
  const auto bytes = [&](int32_t b) {
    return model::copy_bytes(weights_->architecture(), weights_->options(), static_cast<size_t>(b));
  };
  int64_t offset = 0;
  for (int32_t b = begin; b < block; ++b) offset += bytes(b);
  const int64_t count = bytes(block);
  return count > 0 ? buffer.row_range(offset, offset + count) : TensorView{};
}

TensorView PipelineWeights::gradient_buffer(int32_t block) const {
  const int32_t first = passes_->pass(TaskKind::kBackwardInput, block, 0);
  return memory_->view(BufferKind::kGradient, first, at(first).blocks.begin);
}

TensorView PipelineWeights::gradient_part(int32_t block) const {
  const TensorView buffer = gradient_buffer(block);
  const auto bytes = [&](int32_t b) {
    return model::gradient_bytes(weights_->architecture(), weights_->options(),
                                 static_cast<size_t>(b));
  };
  int64_t offset = 0;
  const int32_t first = passes_->pass(TaskKind::kBackwardInput, block, 0);
  for (int32_t b = at(first).blocks.begin; b < block; ++b) offset += bytes(b);
  const int64_t count = bytes(block);
  return count > 0 ? buffer.row_range(offset, offset + count) : TensorView{};
}

model::BlockWeights PipelineWeights::own_weights(int32_t block, const TensorView& gradients) const {
  const auto node = static_cast<size_t>(block);
  model::BlockWeights seen =
      model::copied_weights(weights_->architecture(), weights_->options(), node, {}, gradients);
  const model::BlockWeights& mine = weights_->block(node);
  seen.packed = mine.packed;
  for (size_t i = 0; i < seen.params.size(); ++i) seen.params[i].value = mine.params[i].value;
  return seen;
}

model::BlockWeights PipelineWeights::of_pass(int32_t pass, int32_t block) const {
  const TaskKind kind = at(pass).kind;
  const bool backward = kind == TaskKind::kBackwardInput || kind == TaskKind::kBackwardWeight;
  const TensorView gradients = backward ? gradient_part(block) : TensorView{};
  if (own_) return own_weights(block, gradients);
  return model::copied_weights(weights_->architecture(), weights_->options(),
                               static_cast<size_t>(block), copy_of(pass, block), gradients);
}

int32_t PipelineWeights::home(int32_t block) const {
  return schedule_->host_parameters ? -1 : lasting_device_[static_cast<size_t>(block)];
}

model::BlockWeights PipelineWeights::at_home(int32_t block) const {
  if (own_) return own_weights(block, {});
  return model::copied_weights(weights_->architecture(), weights_->options(),
                               static_cast<size_t>(block), copy_of(-1, block), {});
}

std::vector<model::Param> PipelineWeights::gradients_of(int32_t block) const {
  return model::copied_weights(weights_->architecture(), weights_->options(),
                               static_cast<size_t>(block), {}, gradient_part(block))
      .params;
}

void PipelineWeights::fill(Stream& stream, int32_t task, int32_t block) const {
  const TensorView target = copy_of(task, block);
  if (!target) return;
  model::copy_weights(stream, target, *weights_, static_cast<size_t>(block),
                      CopyKind::kHostToDevice);
}

void PipelineWeights::fetch(Stream& stream, int32_t task) const {
  for (int32_t b = at(task).blocks.begin; b < at(task).blocks.end; ++b) fill(stream, task, b);
  stream.synchronize();
}

void PipelineWeights::renew(Stream& stream, const model::NamedParam& param) const {
  if (own_ || schedule_->host_parameters) return;
  const TensorView copy = at_home(static_cast<int32_t>(param.node)).params[param.index].value;
  stream.copy(copy.data, param.value.data, dtype_bytes(DType::kF32, param.value.count()),
              CopyKind::kHostToDevice);
  stream.synchronize();
}

void PipelineWeights::refresh(Stream& stream, int32_t device) const {
  if (own_ || schedule_->host_parameters) return;
  for (int32_t b = 0; b < schedule_->block_count; ++b) {
    if (lasting_device_[static_cast<size_t>(b)] == device) fill(stream, -1, b);
  }
  stream.synchronize();
}

}  // namespace jige::train
