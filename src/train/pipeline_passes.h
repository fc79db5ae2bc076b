// F, R, X and W of a schedule: which block runs with which buffers.
//
// Inside a stage, boundaries and what is kept lie in the stage's buffers:
//   saved      the boundaries between its blocks, then what each block keeps
//   pending    one boundary gradient, then what each block's X leaves for W
//   transient  of an F that keeps nothing: up to two boundaries, then what one block would keep
// The head's F and R do nothing in training: its X computes logits, losses and gradient in one pass
// and, where its W follows at once, W too (model/head.h).
// Threads: run() of tasks of one device from that device's compute queue.
#pragma once

#include <cstdint>
#include <vector>

#include "model/architecture.h"
#include "plan/pipeline_graph.h"
#include "plan/pipeline_passes.h"
#include "plan/pipeline_schedule.h"
#include "train/expert_use.h"
#include "train/logical_device.h"
#include "train/pipeline_weights.h"
#include "train/schedule_memory.h"

namespace jige::train {

// What a pass works with. Everything must outlive it.
struct PassWorld {
  const plan::PipelineSchedule& schedule;
  const plan::PipelineGraph& graph;
  const plan::PipelinePasses& passes;
  const model::Architecture& architecture;
  DType compute = DType::kF32;
  const ScheduleMemory& memory;
  const PipelineWeights& weights;
  int64_t micro_batch_tokens = 0;
};

class PassRunner {
 public:
  explicit PassRunner(const PassWorld& world) : world_(world) {}

  // Runs a pass, and waits for it. REQUIRES: its buffers exist.
  void run(LogicalDevice& device, int32_t task) const;
  // Whether the losses of the task's micro-batch are on the device once it has run.
  bool makes_losses(int32_t task) const;
  // Adds how the micro-batch of a task used the experts of its blocks, once it has run; X alone.
  void add_expert_use(LogicalDevice& device, int32_t task, ExpertMeter& meter) const;

  // The two ends of a message, u8. REQUIRES: both buffers exist.
  struct Message {
    TensorView from, to;
  };
  Message message(int32_t send) const;

 private:
  const plan::PipelineTask& at(int32_t task) const {
    return world_.schedule.tasks[static_cast<size_t>(task)];
  }
  int32_t head() const { return world_.schedule.block_count - 1; }
  int64_t boundary_bytes() const;
  TensorView rows(const TensorView& buffer, int64_t offset, int64_t token_count) const;
  model::BlockContext context(LogicalDevice& device) const;
  model::BlockWeights weights(LogicalDevice& device, int32_t task, int32_t block) const;

  void forward(LogicalDevice& device, int32_t task) const;
  void recompute(LogicalDevice& device, int32_t task) const;
  void backward_input(LogicalDevice& device, int32_t task) const;
  void backward_weight(LogicalDevice& device, int32_t task) const;

  // Buffers of the passes of a stage and micro-batch.
  TensorView forward_output(int32_t task) const;
  TensorView stage_source(int32_t block, int32_t micro_batch) const;
  TensorView gradient_in(int32_t task) const;
  TensorView gradient_out(int32_t task) const;
  // The pass that keeps what X and W of this task need: R, or F.
  int32_t keeper(const plan::PipelineTask& task) const;
  // Inside a stage.
  TensorView source_of(const plan::PipelineTask& task, int32_t block, int64_t token_count) const;
  TensorView saved_of(int32_t keeper, int32_t block) const;
  TensorView pending_of(const plan::PipelineTask& task, int32_t block) const;
  // W stands right behind X in the device's queue.
  bool weight_follows(int32_t input) const;

  PassWorld world_;
};

}  // namespace jige::train
