// The passes of preference tuning on one device, or on one of several ranks: what a step, a
// measurement and the reference make of pairs of answers. The engines (preference_engine.h,
// rank_engine.h) do the rest.
//
// F of all nodes gives the losses, from which the host makes the weight of each answer in the
// gradient (preference.h); then the head's logits are computed once more, chunk by chunk, with
// these weights, and X and W run as ever (schedule_tasks.h). Both answers of a pair stand in one
// micro-batch. The memory is that of training on texts.
//
//   passes.begin_step(plan);
//   per micro-batch of its own: JIGE_DO(passes.forward(corpus, i, terms));  … backward_tasks() …
//   JIGE_TRY(const PreferenceSums sums, passes.end_step());
//
// Invariant: sums are over all pairs in the order of the data, whoever computed them
// (StepEngine::takes, StepEngine::complete).
// Threads: one thread at a time; all ranks call the same.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "train/executor.h"
#include "train/reference_logprobs.h"
#include "train/step_engine.h"
#include "train/step_plan.h"

namespace jige::train {

class PreferencePasses {
 public:
  // Engine and executor must outlive it.
  PreferencePasses(const DpoOptions& options, StepEngine& engine, Executor& executor,
                   int64_t micro_batch_tokens);

  void set_reference(ReferenceLogProbs reference) { reference_ = std::move(reference); }
  ReferenceLogProbs& reference() { return reference_; }

  // The plan must stay until end_step(). REQUIRES: a reference, for every pair of it.
  void begin_step(const StepPlan& plan);
  // F of a micro-batch; what backward_tasks() need is in the executor then. Fails as Corpus::read.
  Status forward(const Corpus& corpus, size_t micro_batch, const BatchTerms& terms);
  std::span<const Task> backward_tasks() const { return tasks_.backward; }
  // Fails as StepEngine::complete.
  Result<PreferenceSums> end_step();

  // Means over held-out pairs, with `progress` as of evaluate(). Fails as Corpus::read. REQUIRES:
  // micro-batches, and a reference.
  Result<std::optional<PreferenceMeans>> measure(const Corpus& corpus,
                                                 std::span<const MicroBatch> micro_batches,
                                                 const WalkProgress& progress);
  // What the model as it is thinks of all pairs, in their order. `progress` hears of the inputs
  // done and says whether to go on. Fails as Corpus::read, with kCancelled.
  Result<std::vector<ReferencePair>> logprobs(const Corpus& corpus, std::span<const Sequence> pairs,
                                              const std::function<bool(int64_t)>& progress);

 private:
  // F of a micro-batch, and the log-probabilities of its pairs.
  Result<std::vector<PairLogProbs>> run_forward(const Corpus& corpus, const MicroBatch& micro_batch,
                                                const BatchTerms& terms);
  // Sets the records of the loaded micro-batch's pairs; the weights of its sequences in the
  // gradient of the mean over `pair_count` pairs.
  std::vector<float> weigh(const MicroBatch& micro_batch, std::span<const ReferencePair> reference,
                           std::span<const PairLogProbs> policy, int64_t pair_count,
                           std::span<PairRecord> records) const;
  // Where the records of each micro-batch begin; all zero, for all pairs.
  void start_records(std::span<const MicroBatch> micro_batches);
  std::span<PairRecord> records_of(size_t micro_batch);
  Result<PreferenceSums> add_records();

  DpoOptions options_;
  StepEngine& engine_;
  Executor& executor_;
  int64_t micro_batch_tokens_;
  TwoPassTasks tasks_;
  ReferenceLogProbs reference_;
  HostBatch batch_;
  const StepPlan* plan_ = nullptr;     // of the step
  std::vector<PairRecord> records_;    // of the step or measurement
  std::vector<int64_t> record_begin_;  // by micro-batch, and the end
};

}  // namespace jige::train
