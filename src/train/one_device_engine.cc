#include "train/one_device_engine.h"

#include <cmath>
#include <string>

namespace jige::train {

Result<std::unique_ptr<StepEngine>> OneDeviceEngine::create(
    CpuDevice& device, const model::Architecture& architecture,
    const model::WeightsOptions& weights_options, const model::TrainingMemory& memory,
    const TrainOptions& options) {
  std::unique_ptr<OneDeviceEngine> engine(new OneDeviceEngine());
  const auto make_arena = [&](const char* purpose, int64_t bytes) {
    return std::make_unique<Arena>(device, device.name() + " " + purpose, bytes);
  };
  engine->device_ = &device;
  engine->predicted_bytes_ = memory.total_bytes();
  engine->weights_arena_ = make_arena("weights", memory.weights.total_bytes());
  engine->moments_arena_ = make_arena("moments", memory.moments_bytes);
  engine->activations_arena_ = make_arena("activations", memory.buffers.total_bytes());
  JIGE_TRY(engine->stream_, device.make_stream());
  JIGE_TRY(engine->weights_,
           model::ModelWeights::create(*engine->weights_arena_, architecture, weights_options));
  JIGE_TRY(engine->optimizer_, Optimizer::create(*engine->moments_arena_,
                                                 engine->weights_->trainable(), options.optimizer));
  JIGE_TRY(engine->executor_, Executor::create(*engine->activations_arena_, *engine->weights_,
                                               options.micro_batch_tokens));
  engine->tasks_ = one_device_tasks(architecture.node_count(), 1);
  return engine;
}

Result<StepOutcome> OneDeviceEngine::run(const Corpus& corpus, const StepPlan& plan,
                                         const StepRates& rates) {
  BatchTerms terms{.loss_weight = loss_weight_of(plan), .dropout = rates.dropout};
  ExactSum loss;
  weights_->start_gradients(*stream_);
  auto gradients = model::GradientUse::kStore;
  for (const MicroBatch& micro_batch : plan.micro_batches) {
    JIGE_DO(read_batch(corpus, micro_batch, batch_));
    executor_->load(*stream_, batch_, terms);
    executor_->run(*stream_, tasks_, gradients);
    gradients = model::GradientUse::kAdd;
    terms.dropout.token_begin += micro_batch.input_count;
    executor_->add_losses(*stream_, loss);
  }
  weights_->finish_gradients(*stream_);
  StepOutcome outcome{.loss_sum = loss.value()};
  if (rates.before_update) rates.before_update();
  outcome.optimizer = optimizer_->step(*stream_, {.learning_rate = rates.learning_rate,
                                                  .refuse = !std::isfinite(outcome.loss_sum),
                                                  .renew_packed = true});
  if (outcome.optimizer.applied) weights_->pack_others(*stream_);
  stream_->synchronize();
  return outcome;
}

Result<std::unique_ptr<Stream>> OneDeviceEngine::make_stream() { return device_->make_stream(); }

Status OneDeviceEngine::evaluate(const HostBatch& batch, ExactSum& sum) {
  executor_->load(*stream_, batch, {});
  executor_->evaluate(*stream_);
  executor_->add_losses(*stream_, sum);
  return {};
}

Status OneDeviceEngine::end_steps() {
  executor_.reset();
  optimizer_.reset();
  return {};
}

EngineMemory OneDeviceEngine::memory() const {
  return {.predicted_bytes = predicted_bytes_,
          .peak_bytes = weights_arena_->peak_bytes() + moments_arena_->peak_bytes() +
                        activations_arena_->peak_bytes()};
}

}  // namespace jige::train
