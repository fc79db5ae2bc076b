#include "train/preference_engine.h"

#include <cmath>

namespace jige::train {

Result<std::unique_ptr<PreferenceEngine>> PreferenceEngine::create(
    Device& device, const model::Architecture& architecture,
    const model::WeightsOptions& weights_options, const model::TrainingMemory& memory,
    const TrainOptions& options) {
  std::unique_ptr<PreferenceEngine> engine(new PreferenceEngine());
  JIGE_DO(engine->allocate(device, architecture, weights_options, memory, options));
  engine->passes_.emplace(*options.dpo, *engine, *engine->executor_, options.micro_batch_tokens);
  return engine;
}

Result<StepOutcome> PreferenceEngine::run(const Corpus& corpus, const StepPlan& plan,
                                          const StepRates& rates) {
  BatchTerms terms{.dropout = rates.dropout};
  passes_->begin_step(plan);
  weights_->start_gradients(*stream_);
  auto gradients = model::GradientUse::kStore;
  for (size_t i = 0; i < plan.micro_batches.size(); ++i) {
    JIGE_DO(passes_->forward(corpus, i, terms));
    executor_->run(*stream_, passes_->backward_tasks(), gradients);
    gradients = model::GradientUse::kAdd;
    terms.dropout.token_begin += plan.micro_batches[i].input_count;
    executor_->add_expert_use(*stream_, *experts_);
    stream_->synchronize();
  }
  weights_->finish_gradients(*stream_);
  JIGE_TRY(const PreferenceSums sums, passes_->end_step());
  StepOutcome outcome{
      .loss_sum = sums.loss(), .preference = sums.means(), .experts = experts_->take()};
  if (rates.before_update) rates.before_update();
  outcome.optimizer = optimizer_->step(*stream_, {.learning_rate = rates.learning_rate,
                                                  .refuse = !std::isfinite(outcome.loss_sum),
                                                  .renew_packed = true});
  if (outcome.optimizer.applied) weights_->pack_others(*stream_);
  stream_->synchronize();
  return outcome;
}

}  // namespace jige::train
