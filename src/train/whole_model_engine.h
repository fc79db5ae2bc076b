// What the engines share that train with the whole model on one device: weights, optimizer and
// activations have an arena each, capped at what the memory plan says; and what runs need that
// learn from rewards. How a step runs is the subclass's.
//
// Threads: one thread at a time; the device's team runs the kernels.
#pragma once

#include <memory>
#include <optional>

#include "model/memory_plan.h"
#include "tensor/arena.h"
#include "tensor/device.h"
#include "train/executor.h"
#include "train/image_rows.h"
#include "train/options.h"
#include "train/reward_passes.h"
#include "train/step_engine.h"

namespace jige::train {

class WholeModelEngine : public StepEngine {
 public:
  model::ModelWeights& weights() override { return *weights_; }
  Optimizer& optimizer() override { return *optimizer_; }
  model::NodeStreams streams() override { return *stream_; }
  Result<model::OwnNodeStreams> make_streams() override;
  void refresh() override {}
  Status evaluate(HostBatch& batch, ExactSum& sum) override;
  RewardPasses* rewards() override { return rewards_ ? &*rewards_ : nullptr; }
  Status end_steps() override;
  EngineMemory memory() const override;

 protected:
  // The device and the architecture must outlive the engine, with grpo the options, too. Fails with
  // kExhausted. To be called once, before anything else.
  Status allocate(Device& device, const model::Architecture& architecture,
                  const model::WeightsOptions& weights_options, const model::TrainingMemory& memory,
                  const TrainOptions& options);

  // Makes a micro-batch the executor's, with its images. Fails as ImageRows::read.
  Status load(HostBatch& batch, const BatchTerms& terms);

  Device* device_ = nullptr;
  int64_t predicted_bytes_ = 0;
  std::unique_ptr<Stream> stream_;
  // Arenas come before what lives in them.
  std::unique_ptr<Arena> weights_arena_, moments_arena_, activations_arena_;
  std::optional<model::ModelWeights> weights_;
  std::optional<Optimizer> optimizer_;
  std::optional<Executor> executor_;
  std::optional<ExpertMeter> experts_;
  std::optional<RewardPasses> rewards_;  // with grpo
  std::unique_ptr<ImageRows> images_;    // where the data has any
  int64_t images_peak_bytes_ = 0;        // of what is given back
  HostBatch batch_;
};

}  // namespace jige::train
