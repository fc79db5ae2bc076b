// Training on one device that holds everything: weights, optimizer and activations have an arena
// each, capped at what the memory plan says.
//
// A step: zero gradients; for every micro-batch in order, its tasks (schedule_tasks.h); AdamW;
// pack. Threads: one thread at a time; the device's team runs the kernels.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "model/memory_plan.h"
#include "tensor/arena.h"
#include "tensor/cpu_device.h"
#include "train/executor.h"
#include "train/options.h"
#include "train/step_engine.h"

namespace jige::train {

class OneDeviceEngine final : public StepEngine {
 public:
  // The device and the architecture must outlive the engine. Fails with kExhausted.
  static Result<std::unique_ptr<StepEngine>> create(CpuDevice& device,
                                                    const model::Architecture& architecture,
                                                    const model::WeightsOptions& weights_options,
                                                    const model::TrainingMemory& memory,
                                                    const TrainOptions& options);

  model::ModelWeights& weights() override { return *weights_; }
  Optimizer& optimizer() override { return *optimizer_; }
  Stream& stream() override { return *stream_; }
  Result<std::unique_ptr<Stream>> make_stream() override;
  void refresh() override {}
  Result<StepOutcome> run(const Corpus& corpus, const StepPlan& plan,
                          const StepRates& rates) override;
  Status evaluate(const HostBatch& batch, ExactSum& sum) override;
  Status end_steps() override;
  EngineMemory memory() const override;

 private:
  OneDeviceEngine() = default;

  CpuDevice* device_ = nullptr;
  int64_t predicted_bytes_ = 0;
  std::unique_ptr<Stream> stream_;
  // Arenas come before what lives in them.
  std::unique_ptr<Arena> weights_arena_, moments_arena_, activations_arena_;
  std::optional<model::ModelWeights> weights_;
  std::optional<Optimizer> optimizer_;
  std::optional<Executor> executor_;
  std::vector<Task> tasks_;  // of one micro-batch
  HostBatch batch_;
};

}  // namespace jige::train
