// Learning from rewards on one device that holds everything: the weights that learn draw the
// answers that they learn from (reward_passes.h).
//
// A step: answers, rewards, advantages; then, once for every update, every micro-batch in order, in
// the two halves of reward_passes.h; AdamW. Where no rewards differ nothing is changed.
// Threads: one thread at a time; the device's team runs the kernels.
#pragma once

#include <memory>

#include "train/whole_model_engine.h"

namespace jige::train {

class RewardEngine final : public WholeModelEngine {
 public:
  // The device, the architecture and the options must outlive the engine. Fails with kExhausted.
  // REQUIRES: options.grpo; rewards()->start() before anything is drawn or learned.
  static Result<std::unique_ptr<RewardEngine>> create(Device& device,
                                                      const model::Architecture& architecture,
                                                      const model::WeightsOptions& weights_options,
                                                      const model::TrainingMemory& memory,
                                                      const TrainOptions& options);

  // A sequence of the plan is a prompt. Fails as RewardPasses::begin_step.
  Result<StepOutcome> run(const Corpus& corpus, const StepPlan& plan,
                          const StepRates& rates) override;

 private:
  RewardEngine() = default;
  // One update; the outcome says what it did.
  Status update(const StepRates& rates, StepOutcome& outcome);
};

}  // namespace jige::train
