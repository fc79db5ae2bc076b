#include "train/whole_model_engine.h"

#include <string>
#include <vector>

#include "model/device_support.h"

namespace jige::train {

Status WholeModelEngine::allocate(Device& device, const model::Architecture& architecture,
                                  const model::WeightsOptions& weights_options,
                                  const model::TrainingMemory& memory,
                                  const TrainOptions& options) {
  const auto make_arena = [&](const char* purpose, int64_t bytes) {
    return std::make_unique<Arena>(device, device.name() + " " + purpose, bytes);
  };
  device_ = &device;
  JIGE_DO(model::check_device_support(device.kind(), device.name(), architecture));
  predicted_bytes_ = memory.total_bytes();
  weights_arena_ = make_arena("weights", memory.weights.total_bytes());
  moments_arena_ = make_arena("moments", memory.moments_bytes + memory.masters_bytes);
  activations_arena_ = make_arena("activations", memory.buffers.total_bytes());
  JIGE_TRY(stream_, device.make_stream());
  JIGE_TRY(weights_, model::ModelWeights::create(*weights_arena_, architecture, weights_options));
  if (options.ranks && options.ranks->shards()) {
    const OptimizerShares shares(weights_->trainable(), options.ranks->size,
                                 options.optimizer.moments);
    JIGE_TRY(optimizer_, Optimizer::create_share(*moments_arena_, weights_->trainable(),
                                                 options.optimizer, shares, options.ranks->rank));
  } else {
    JIGE_TRY(optimizer_,
             Optimizer::create(*moments_arena_, weights_->trainable(), options.optimizer));
  }
  JIGE_TRY(executor_, Executor::create(*activations_arena_, *weights_, options.micro_batch_tokens,
                                       options.ranks ? options.ranks->context_ranks() : 1));
  experts_.emplace(architecture);
  if (options.grpo) rewards_.emplace(options, *this, *executor_);
  if (options.images) {
    JIGE_TRY(images_, ImageRows::load(*options.images, architecture, device));
  }
  return {};
}

Result<model::OwnNodeStreams> WholeModelEngine::make_streams() {
  return model::OwnNodeStreams::make(
      std::vector<Device*>(weights_->architecture().node_count(), device_));
}

Status WholeModelEngine::load(HostBatch& batch, const BatchTerms& terms) {
  if (images_) JIGE_DO(images_->read(batch, weights_->block(0).rope_table));
  executor_->load(*stream_, batch, terms);
  return {};
}

Status WholeModelEngine::evaluate(HostBatch& batch, ExactSum& sum) {
  JIGE_DO(load(batch, {}));
  executor_->evaluate(*stream_);
  executor_->add_losses(*stream_, sum);
  return {};
}

Status WholeModelEngine::end_steps() {
  if (rewards_) rewards_->end();
  executor_.reset();
  if (images_) images_peak_bytes_ = images_->peak_bytes();
  images_.reset();
  optimizer_.reset();
  return {};
}

EngineMemory WholeModelEngine::memory() const {
  EngineMemory memory{.predicted_bytes = predicted_bytes_,
                      .peak_bytes = weights_arena_->peak_bytes() + moments_arena_->peak_bytes() +
                                    activations_arena_->peak_bytes()};
  if (rewards_) rewards_->add_memory(memory);
  memory.peak_bytes += images_ ? images_->peak_bytes() : images_peak_bytes_;
  return memory;
}

}  // namespace jige::train
