#include "train/one_device_engine.h"

#include <cmath>

#include "train/expert_bias.h"

namespace jige::train {

Result<std::unique_ptr<StepEngine>> OneDeviceEngine::create(
    Device& device, const model::Architecture& architecture,
    const model::WeightsOptions& weights_options, const model::TrainingMemory& memory,
    const TrainOptions& options) {
  std::unique_ptr<OneDeviceEngine> engine(new OneDeviceEngine());
  JIGE_DO(engine->allocate(device, architecture, weights_options, memory, options));
  engine->tasks_ = one_device_tasks(architecture.node_count(), 1);
  if (options.row_gate) engine->gate_.emplace(*options.row_gate, options.seed, *engine->weights_);
  return engine;
}

Result<StepOutcome> OneDeviceEngine::run(const Corpus& corpus, const StepPlan& plan,
                                         const StepRates& rates) {
  BatchTerms terms{.loss_weight = loss_weight_of(plan),
                   .dropout = rates.dropout,
                   .balance_weight = balance_weight_of(plan, rates.balance)};
  ExactSum loss;
  if (gate_) gate_->start_step(rates.step);
  weights_->start_gradients(*stream_);
  auto gradients = model::GradientUse::kStore;
  for (const MicroBatch& micro_batch : plan.micro_batches) {
    JIGE_DO(read_batch(corpus, micro_batch, batch_));
    JIGE_DO(load(batch_, terms));
    executor_->run(*stream_, tasks_, gradients);
    gradients = model::GradientUse::kAdd;
    terms.dropout.token_begin += micro_batch.input_count;
    executor_->add_losses(*stream_, loss);
    executor_->add_expert_use(*stream_, *experts_);
  }
  weights_->finish_gradients(*stream_);
  if (gate_) gate_->scale_gradients(*stream_);
  StepOutcome outcome{.loss_sum = loss.value(), .experts = experts_->take()};
  if (rates.before_update) rates.before_update();
  OptimizerStep step{.learning_rate = rates.learning_rate,
                     .refuse = !std::isfinite(outcome.loss_sum),
                     .renew_packed = true};
  if (gate_) step.rows = gate_->updated_rows();
  outcome.optimizer = optimizer_->step(*stream_, step);
  if (outcome.optimizer.applied) {
    weights_->pack_others(*stream_);
    move_choice_biases(*stream_, *weights_, outcome.experts, rates.expert_bias_rate);
  }
  stream_->synchronize();
  if (!gate_) return outcome;
  gate_->end_step(outcome.loss_sum / static_cast<double>(plan.learned_count),
                  outcome.optimizer.applied);
  outcome.rows = gate_->use();
  return outcome;
}

}  // namespace jige::train
