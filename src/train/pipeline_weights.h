// Where passes find the parameters and gradients of a block on a device, for a schedule in memory.
//
// Three places: the model's own weights, where the optimizer is on the device; a lasting copy on
// the device, renewed after updates; a copy that a fetch brings and a release takes away.
// Gradients are the device's gradient buffer of the stage in each case.
// Threads: read-only after create(); fetch() and refresh() on the stream they are given.
#pragma once

#include <cstdint>
#include <vector>

#include "base/result.h"
#include "model/weights.h"
#include "plan/pipeline_graph.h"
#include "plan/pipeline_passes.h"
#include "plan/pipeline_schedule.h"
#include "train/schedule_memory.h"

namespace jige::train {

class PipelineWeights {
 public:
  // Everything must outlive it. REQUIRES: a verified schedule.
  PipelineWeights(const plan::PipelineSchedule& schedule, const plan::PipelineGraph& graph,
                  const plan::PipelinePasses& passes, const model::ModelWeights& weights,
                  const ScheduleMemory& memory);

  // The block as a pass sees it, without rope table; gradients for X and W.
  model::BlockWeights of_pass(int32_t pass, int32_t block) const;
  // The device that holds a block between steps, or -1 where the host alone does.
  int32_t home(int32_t block) const;
  // The block as its home holds it, without gradients. REQUIRES: home(block) >= 0.
  model::BlockWeights at_home(int32_t block) const;
  // The gradients of a block's parameters in the device's buffer. REQUIRES: the buffer exists.
  std::vector<model::Param> gradients_of(int32_t block) const;
  // The bytes of these together, and of a whole stage's gradient buffer.
  TensorView gradient_part(int32_t block) const;
  TensorView gradient_buffer(int32_t block) const;

  // Brings the blocks of a fetch task to its device.
  void fetch(Stream& stream, int32_t task) const;
  // Renews one parameter that is not packed in its block's lasting copy, if there is one. Waits.
  void renew(Stream& stream, const model::NamedParam& param) const;
  // Fills all lasting copies of a device, before the first step.
  void refresh(Stream& stream, int32_t device) const;

 private:
  const plan::PipelineTask& at(int32_t task) const {
    return schedule_->tasks[static_cast<size_t>(task)];
  }
  // The copy of a block that a pass reads or a fetch fills; without host parameters the lasting
  // one.
  TensorView copy_of(int32_t task, int32_t block) const;
  void fill(Stream& stream, int32_t task, int32_t block) const;
  void find_visits(const plan::PipelineGraph& graph);
  void find_lasting();
  model::BlockWeights own_weights(int32_t block, const TensorView& gradients) const;

  const plan::PipelineSchedule* schedule_;
  const plan::PipelinePasses* passes_;
  const model::ModelWeights* weights_;
  const ScheduleMemory* memory_;
  bool own_ = false;                     // passes read the model's own weights
  std::vector<int32_t> visit_;           // by task: the fetch whose copies a pass reads, or -1
  std::vector<int32_t> lasting_begin_;   // by block: first block of its lasting copy
  std::vector<int32_t> lasting_device_;  // by block
};

}  // namespace jige::train
