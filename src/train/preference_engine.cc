#include "train/preference_engine.h"

#include <algorithm>
#include <cmath>

namespace jige::train {

Result<std::unique_ptr<PreferenceEngine>> PreferenceEngine::create(
    CpuDevice& device, const model::Architecture& architecture,
    const model::WeightsOptions& weights_options, const model::TrainingMemory& memory,
    const TrainOptions& options) {
  std::unique_ptr<PreferenceEngine> engine(new PreferenceEngine(options));
  JIGE_DO(engine->allocate(device, architecture, weights_options, memory, options));
  engine->micro_batch_tokens_ = options.micro_batch_tokens;
  engine->tasks_ = two_pass_tasks(architecture.node_count());
  return engine;
}

Result<std::vector<PairLogProbs>> PreferenceEngine::forward(const Corpus& corpus,
                                                            const MicroBatch& micro_batch,
                                                            const BatchTerms& terms) {
  JIGE_DO(read_batch(corpus, micro_batch, batch_));
  executor_->load(*stream_, batch_, terms);
  executor_->run(*stream_, tasks_.forward);
  const std::vector<double> losses = executor_->sequence_losses(*stream_);
  std::vector<PairLogProbs> pairs;
  for (size_t i = 0; i + 1 < losses.size(); i += 2) pairs.push_back({-losses[i], -losses[i + 1]});
  return pairs;
}

std::vector<float> PreferenceEngine::add_pairs(const MicroBatch& micro_batch,
                                               std::span<const ReferencePair> reference,
                                               std::span<const PairLogProbs> policy,
                                               int64_t pair_count, PreferenceSums& sums) const {
  std::vector<float> weights;
  auto targets = batch_.targets.begin();
  for (size_t i = 0; i < policy.size(); ++i) {
    const auto chosen_end = targets + batch_.counts[2 * i];
    const auto chosen = std::count_if(targets, chosen_end, [](int32_t id) { return id >= 0; });
    targets = chosen_end + batch_.counts[2 * i + 1];
    const PairTerms terms = pair_terms(
        options_, policy[i], find_reference(reference, micro_batch.sequences[i].begin), chosen);
    sums.add(terms, policy[i]);
    const auto share = [&](double weight) {
      return static_cast<float>(weight / static_cast<double>(pair_count));
    };
    weights.push_back(share(terms.chosen_weight));
    weights.push_back(share(terms.rejected_weight));
  }
  return weights;
}

Result<StepOutcome> PreferenceEngine::run(const Corpus& corpus, const StepPlan& plan,
                                          const StepRates& rates) {
  int64_t pair_count = 0;
  for (const MicroBatch& batch : plan.micro_batches) pair_count += std::ssize(batch.sequences);
  BatchTerms terms{.dropout = rates.dropout};
  PreferenceSums sums;
  weights_->start_gradients(*stream_);
  auto gradients = model::GradientUse::kStore;
  for (const MicroBatch& micro_batch : plan.micro_batches) {
    JIGE_TRY(const auto policy, forward(corpus, micro_batch, terms));
    executor_->weigh_sequences(
        *stream_, add_pairs(micro_batch, reference_.training, policy, pair_count, sums));
    executor_->run(*stream_, tasks_.backward, gradients);
    gradients = model::GradientUse::kAdd;
    terms.dropout.token_begin += micro_batch.input_count;
    stream_->synchronize();
  }
  weights_->finish_gradients(*stream_);
  StepOutcome outcome{.loss_sum = sums.loss(), .preference = sums.means()};
  if (rates.before_update) rates.before_update();
  outcome.optimizer = optimizer_->step(*stream_, {.learning_rate = rates.learning_rate,
                                                  .refuse = !std::isfinite(outcome.loss_sum),
                                                  .renew_packed = true});
  if (outcome.optimizer.applied) weights_->pack_others(*stream_);
  stream_->synchronize();
  return outcome;
}

Result<PreferenceMeans> PreferenceEngine::measure(const Corpus& corpus,
                                                  std::span<const MicroBatch> micro_batches) {
  PreferenceSums sums;
  for (const MicroBatch& micro_batch : micro_batches) {
    JIGE_TRY(const auto policy, forward(corpus, micro_batch, {}));
    add_pairs(micro_batch, reference_.held_out, policy, 1, sums);
  }
  return sums.means();
}

Result<std::vector<ReferencePair>> PreferenceEngine::logprobs(
    const Corpus& corpus, std::span<const Sequence> pairs,
    const std::function<bool(int64_t)>& progress) {
  std::vector<ReferencePair> result;
  int64_t done = 0;
  for (const MicroBatch& micro_batch : pack_micro_batches(pairs, micro_batch_tokens_)) {
    JIGE_TRY(const auto both, forward(corpus, micro_batch, {}));
    for (size_t i = 0; i < both.size(); ++i) {
      result.push_back({micro_batch.sequences[i].begin, both[i]});
    }
    done += micro_batch.input_count;
    if (progress && !progress(done)) {
      return fail(Code::kCancelled, "stopped while the reference was computed");
    }
  }
  return result;
}

}  // namespace jige::train
