// Preference tuning on one device that holds everything: the model that learns, and of the one it
// started from only what it thinks of the pairs (reference_logprobs.h).
//
// A step: every micro-batch in order, in the two halves of preference_passes.h; AdamW; pack.
// Threads: one thread at a time; the device's team runs the kernels.
#pragma once

#include <memory>
#include <optional>

#include "train/preference_passes.h"
#include "train/whole_model_engine.h"

namespace jige::train {

class PreferenceEngine final : public WholeModelEngine {
 public:
  // The device and the architecture must outlive the engine. Fails with kExhausted.
  // REQUIRES: options.dpo.
  static Result<std::unique_ptr<PreferenceEngine>> create(
      Device& device, const model::Architecture& architecture,
      const model::WeightsOptions& weights_options, const model::TrainingMemory& memory,
      const TrainOptions& options);

  PreferencePasses* preference() override { return &*passes_; }
  // REQUIRES: a reference, for every pair of the plan.
  Result<StepOutcome> run(const Corpus& corpus, const StepPlan& plan,
                          const StepRates& rates) override;

 private:
  PreferenceEngine() = default;

  std::optional<PreferencePasses> passes_;
};

}  // namespace jige::train
