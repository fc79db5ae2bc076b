#include "train/pipeline_updates.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "ops/adamw.h"
#include "ops/elementwise.h"

namespace jige::train {

PipelineUpdates::PipelineUpdates(const plan::PipelineSchedule& schedule,
                                 model::ModelWeights& weights, Optimizer& optimizer,
                                 const PipelineWeights& places, std::optional<UndoImages> undo)
    : schedule_(&schedule),
      weights_(&weights),
      optimizer_(&optimizer),
      places_(&places),
      undo_(std::move(undo)),
      params_of_(static_cast<size_t>(schedule.block_count)),
      squares_(optimizer.params().size()),
      updated_(optimizer.params().size()),
      tied_(weights.architecture().config().tied_embeddings && !weights.architecture().lora()) {
  for (size_t i = 0; i < optimizer.params().size(); ++i) {
    params_of_[optimizer.params()[i].node].push_back(i);
  }
}

void PipelineUpdates::begin(double learning_rate) {
  learning_rate_ = learning_rate;
  decision_.reset();
  merged_ = false;
  std::ranges::fill(squares_, 0.0);
  std::ranges::fill(updated_, uint8_t{0});
}

TensorView PipelineUpdates::gradient(size_t param) const {
  const model::NamedParam& named = optimizer_->params()[param];
  if (on_host()) return named.grad;
  return places_->gradients_of(static_cast<int32_t>(named.node))[named.index].grad;
}

bool PipelineUpdates::is_table(size_t param) const {
  const model::NamedParam& named = optimizer_->params()[param];
  return tied_ && named.node == 0 && named.index == model::Embedding::kTable;
}

void PipelineUpdates::take(Stream& stream, plan::BlockRange blocks) {
  for (int32_t b = blocks.begin; b < blocks.end; ++b) {
    const TensorView source = places_->gradient_part(b);
    if (!source) continue;
    stream.copy(weights_->gradient_memory(static_cast<size_t>(b)).data, source.data, source.count(),
                CopyKind::kDeviceToHost);
  }
  stream.synchronize();
}

void PipelineUpdates::gather(Stream& stream, plan::BlockRange blocks) {
  std::vector<size_t> params;
  std::vector<TensorView> gradients;
  for (int32_t b = blocks.begin; b < blocks.end; ++b) {
    const std::vector<model::Param> on_device = places_->gradients_of(b);
    for (const size_t i : params_of(b)) {
      if (is_table(i)) continue;  // its gradient is not complete without the head's
      params.push_back(i);
      gradients.push_back(on_device[optimizer_->params()[i].index].grad);
    }
  }
  std::vector<double> squares(params.size());
  ops::sums_of_squares(stream, gradients, squares.data());
  if (on_host()) take(stream, blocks);
  stream.synchronize();
  for (size_t i = 0; i < params.size(); ++i) squares_[params[i]] = squares[i];
}

void PipelineUpdates::merge_tied(Stream& stream) {
  if (!tied_ || merged_) return;
  merged_ = true;
  const model::Architecture& architecture = weights_->architecture();
  const size_t head = architecture.head_node();
  const size_t linear = architecture.head().linear_index();
  const TensorView part = on_host()
                              ? weights_->block(head).params[linear].grad
                              : places_->gradients_of(static_cast<int32_t>(head))[linear].grad;
  for (const size_t i : params_of(0)) {
    if (!is_table(i)) continue;
    const TensorView table = gradient(i);
    ops::add(stream, table, table, part);
    ops::sums_of_squares(stream, {{table}}, &squares_[i]);
  }
  stream.synchronize();
}

void PipelineUpdates::decide(const model::NodeStreams& streams, bool loss_finite) {
  merge_tied(streams[0]);  // the head is where the table is
  decision_ = optimizer_->decide(squares_, !loss_finite);
}

void PipelineUpdates::update_param(Stream& stream, size_t param, double grad_scale) {
  optimizer_->update(stream, param, gradient(param),
                     {.learning_rate = learning_rate_,
                      .grad_scale = grad_scale,
                      .update = optimizer_->update_count() + 1,
                      .renew_packed = true});
  updated_[param] = 1;
}

void PipelineUpdates::update(Stream& stream, plan::BlockRange blocks) {
  if (decision_ && !decision_->applied) return;
  if (blocks.begin == 0) merge_tied(stream);
  JIGE_CHECK(decision_ || undo_, "an update before the norm is known, without images");
  for (int32_t b = blocks.begin; b < blocks.end; ++b) {
    for (const size_t i : params_of(b)) {
      if (!decision_) undo_->save(stream, *optimizer_, i);
      update_param(stream, i, decision_ ? decision_->grad_scale : 1.0);
    }
  }
  pack_others(stream, blocks);
  stream.synchronize();
}

void PipelineUpdates::pack_others(Stream& stream, plan::BlockRange blocks) {
  const int32_t head = schedule_->block_count - 1;
  for (int32_t b = blocks.begin; b < blocks.end; ++b) {
    if (!tied_ || b != head) weights_->pack_others(stream, static_cast<size_t>(b));
  }
  if (tied_ && blocks.begin == 0) weights_->pack_others(stream, static_cast<size_t>(head));
}

void PipelineUpdates::take_back(const model::NodeStreams& streams) {
  for (size_t i = 0; i < updated_.size(); ++i) {
    if (updated_[i] == 0) continue;
    undo_->restore(streams[optimizer_->params()[i].node], *optimizer_, i);
    updated_[i] = 0;
  }
}

PipelineUpdates::Outcome PipelineUpdates::finish(const model::NodeStreams& streams,
                                                 bool loss_finite) {
  Outcome outcome;
  const bool speculated = !decision_;
  if (speculated) decide(streams, loss_finite);
  outcome.report = *decision_;
  const int64_t count = optimizer_->update_count();
  outcome.redone = speculated && (!decision_->applied || decision_->grad_scale != 1);
  if (outcome.redone) {
    take_back(streams);
    for (size_t i = 0; decision_->applied && i < squares_.size(); ++i) {
      update_param(streams[optimizer_->params()[i].node], i, decision_->grad_scale);
    }
    decision_->applied ? weights_->pack_others(streams) : weights_->pack(streams);
    streams.synchronize();
  }
  if (decision_->applied) optimizer_->set_update_count(count + 1);
  return outcome;
}

void PipelineUpdates::abandon(const model::NodeStreams& streams) {
  if (!undo_) return;
  take_back(streams);
  weights_->pack(streams);
  streams.synchronize();
}

}  // namespace jige::train
