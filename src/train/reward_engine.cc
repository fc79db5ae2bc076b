#include "train/reward_engine.h"

namespace jige::train {

Result<std::unique_ptr<RewardEngine>> RewardEngine::create(
    Device& device, const model::Architecture& architecture,
    const model::WeightsOptions& weights_options, const model::TrainingMemory& memory,
    const TrainOptions& options) {
  std::unique_ptr<RewardEngine> engine(new RewardEngine());
  JIGE_DO(engine->allocate(device, architecture, weights_options, memory, options));
  return engine;
}

Status RewardEngine::update(const StepRates& rates, StepOutcome& outcome) {
  rewards_->begin_update();
  weights_->start_gradients(*stream_);
  auto gradients = model::GradientUse::kStore;
  for (size_t i = 0; i < rewards_->micro_batches().size(); ++i) {
    JIGE_DO(rewards_->forward(i));
    executor_->run(*stream_, rewards_->backward_tasks(), gradients);
    gradients = model::GradientUse::kAdd;
    executor_->add_expert_use(*stream_, *experts_);
    stream_->synchronize();
  }
  weights_->finish_gradients(*stream_);
  JIGE_TRY(const bool finite, rewards_->end_update());
  if (rates.before_update) rates.before_update();
  outcome.optimizer = optimizer_->step(
      *stream_, {.learning_rate = rates.learning_rate, .refuse = !finite, .renew_packed = true});
  if (outcome.optimizer.applied) weights_->pack_others(*stream_);
  stream_->synchronize();
  return {};
}

Result<StepOutcome> RewardEngine::run(const Corpus& /*corpus*/, const StepPlan& plan,
                                      const StepRates& rates) {
  StepOutcome outcome;
  JIGE_TRY(const bool drawn, rewards_->begin_step(plan, rates));
  outcome.left = !drawn;
  if (outcome.left) return outcome;
  // Where there is nothing to learn, nothing is wrong.
  outcome.optimizer.applied = true;
  for (int64_t i = 0; i < rewards_->update_count() && outcome.optimizer.applied; ++i) {
    JIGE_DO(update(rates, outcome));
  }
  rewards_->end_step(outcome);
  outcome.experts = experts_->take();
  return outcome;
}

}  // namespace jige::train
