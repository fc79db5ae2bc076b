// Preference tuning on one device that holds everything: the model that learns, and of the one it
// started from only what it thinks of the pairs (reference_logprobs.h).
//
// A step: for every micro-batch in order, F of all nodes, from whose losses the host makes the
// weight of each answer in the gradient (preference.h); then the head's logits are computed once
// more, chunk by chunk, with these weights, and X and W run as ever (schedule_tasks.h). Both
// answers of a pair stand in one micro-batch. The memory is that of training on texts.
// Threads: one thread at a time; the device's team runs the kernels.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "train/reference_logprobs.h"
#include "train/whole_model_engine.h"

namespace jige::train {

class PreferenceEngine final : public WholeModelEngine {
 public:
  // The device and the architecture must outlive the engine. Fails with kExhausted.
  // REQUIRES: options.dpo.
  static Result<std::unique_ptr<PreferenceEngine>> create(
      CpuDevice& device, const model::Architecture& architecture,
      const model::WeightsOptions& weights_options, const model::TrainingMemory& memory,
      const TrainOptions& options);

  void set_reference(ReferenceLogProbs reference) { reference_ = std::move(reference); }

  // REQUIRES: a reference, for every pair of the plan.
  Result<StepOutcome> run(const Corpus& corpus, const StepPlan& plan,
                          const StepRates& rates) override;
  // Means over held-out pairs. Fails as Corpus::read. REQUIRES: micro-batches, and a reference.
  Result<PreferenceMeans> measure(const Corpus& corpus, std::span<const MicroBatch> micro_batches);
  // What the model as it is thinks of all pairs, in their order. `progress` hears of the inputs
  // done and says whether to go on. Fails as Corpus::read, with kCancelled.
  Result<std::vector<ReferencePair>> logprobs(const Corpus& corpus, std::span<const Sequence> pairs,
                                              const std::function<bool(int64_t)>& progress);

 private:
  explicit PreferenceEngine(const TrainOptions& options) : options_(*options.dpo) {}
  // F of a micro-batch, and the log-probabilities of its pairs.
  Result<std::vector<PairLogProbs>> forward(const Corpus& corpus, const MicroBatch& micro_batch,
                                            const BatchTerms& terms);
  // Adds the loaded micro-batch's pairs to the sums; the weights of its sequences in the gradient
  // of the mean over `pair_count` pairs.
  std::vector<float> add_pairs(const MicroBatch& micro_batch,
                               std::span<const ReferencePair> reference,
                               std::span<const PairLogProbs> policy, int64_t pair_count,
                               PreferenceSums& sums) const;

  DpoOptions options_;
  int64_t micro_batch_tokens_ = 0;
  TwoPassTasks tasks_;
  ReferenceLogProbs reference_;
};

}  // namespace jige::train
