#include "train/executor.h"

#include <utility>

#include "base/check.h"

namespace jige::train {

Result<Executor> Executor::create(Arena& arena, const model::ModelWeights& weights,
                                  int64_t micro_batch_tokens, int context_ranks) {
  Executor executor(weights);
  const model::TrainingBuffers buffers = model::training_buffers(
      weights.architecture(), weights.options().compute, micro_batch_tokens, context_ranks);
  executor.micro_batch_tokens_ = buffers.row_count;
  JIGE_DO(executor.allocate(arena, buffers));
  return executor;
}

Status Executor::allocate(Arena& arena, const model::TrainingBuffers& buffers) {
  const auto make = [&](int64_t bytes) -> Result<Tensor> {
    if (bytes == 0) return Tensor();
    return arena.make(DType::kU8, Shape{bytes});
  };
  const Shape residual{micro_batch_tokens_, weights_->architecture().stream_columns()};
  for (int64_t i = 0; i < buffers.stream_count; ++i) {
    JIGE_TRY(Tensor output, arena.make(DType::kF32, residual));
    outputs_.push_back(std::move(output));
  }
  for (const int64_t bytes : buffers.saved_bytes) {
    JIGE_TRY(Tensor saved, make(bytes));
    saved_.push_back(std::move(saved));
  }
  JIGE_TRY(gradient_, arena.make(DType::kF32, residual));
  for (int64_t i = 0; i < buffers.pending_count; ++i) {
    JIGE_TRY(Tensor pending, make(buffers.pending_bytes));
    pending_.push_back(std::move(pending));
  }
  JIGE_TRY(gathered_, make(buffers.gathered_bytes));
  JIGE_TRY(workspace_, make(buffers.workspace_bytes));
  const Shape column{micro_batch_tokens_};
  for (Tensor* tensor : {&tokens_, &positions_, &targets_}) {
    JIGE_TRY(*tensor, arena.make(DType::kI32, column));
  }
  for (Tensor* tensor : {&loss_weights_, &losses_}) {
    JIGE_TRY(*tensor, arena.make(DType::kF32, column));
  }
  return {};
}

TensorView Executor::rows(const Tensor& tensor) const {
  return tensor.view().row_range(0, batch_.token_count());
}

void Executor::load(Stream& stream, const HostBatch& batch, const BatchTerms& terms) {
  JIGE_CHECK(!batch.tokens.empty(), "a micro-batch without tokens");
  loader_.load(stream,
               {.tokens = tokens_.view(),
                .positions = positions_.view(),
                .targets = targets_.view(),
                .loss_weights = loss_weights_.view()},
               batch, terms, batch_);
  given_ = batch.given;
  batch_.given = given_.data();
  batch_.given_count = given_.size();
}

model::BlockContext Executor::context(Stream& stream) const {
  return {.stream = stream,
          .compute = weights_->options().compute,
          .workspace = workspace_.view(),
          .gradients = gradients_,
          .exchange = exchange_,
          .gathered = gathered_.view(),
          .weight_rows = weight_rows_};
}

model::BlockMemory Executor::memory(size_t node) const {
  return {.saved = saved_[node].view(), .pending = pending_[node % pending_.size()].view()};
}

TensorView Executor::source(size_t node) const {
  return node == 0 ? TensorView{} : rows(outputs_[node - 1]);
}

void Executor::forward(Stream& stream, size_t node) {
  const TensorView dst = node == head_node() ? rows(losses_) : rows(outputs_[node]);
  weights_->architecture().block(node).forward(context(stream), weights_->block(node), batch_,
                                               source(node), dst, memory(node));
  if (node > 0 && node < head_node()) {
    model::add_deep_rows(stream, given_, dst, 0, static_cast<int32_t>(node) - 1);
  }
}

void Executor::head_pass(Stream& stream, const model::RowRange& range) {
  const size_t node = head_node();
  const auto part = [&](const TensorView& rows) { return rows.row_range(range.begin, range.end); };
  model::Batch batch = batch_;
  for (TensorView* rows : {&batch.tokens, &batch.positions, &batch.targets, &batch.loss_weights}) {
    *rows = part(*rows);
  }
  weights_->architecture().head().forward_backward(context(stream), weights_->block(node), batch,
                                                   part(source(node)), part(rows(losses_)),
                                                   part(rows(gradient_)), memory(node));
}

void Executor::run_rows(Stream& stream, const Task& task, const model::RowRange& rows,
                        model::GradientUse gradients) {
  gradients_ = gradients;
  if (task.kind == StepTaskKind::kHeadPass) return head_pass(stream, rows);
  JIGE_CHECK(task.kind == StepTaskKind::kBackwardWeight, "a task of rows that is not W");
  weight_rows_ = rows;
  backward_weight(stream, static_cast<size_t>(task.node));
  weight_rows_.reset();
}

void Executor::backward_input(Stream& stream, size_t node) {
  const TensorView before = node == 0 ? TensorView{} : rows(gradient_);
  weights_->architecture().block(node).backward_input(context(stream), weights_->block(node),
                                                      batch_, source(node), rows(gradient_), before,
                                                      memory(node));
}

void Executor::backward_weight(Stream& stream, size_t node) {
  weights_->architecture().block(node).backward_weight(context(stream), weights_->block(node),
                                                       batch_, source(node), memory(node));
}

void Executor::run(Stream& stream, std::span<const Task> tasks, model::GradientUse gradients) {
  gradients_ = gradients;
  for (const Task& task : tasks) {
    const auto node = static_cast<size_t>(task.node);
    switch (task.kind) {
      case StepTaskKind::kForward:
        forward(stream, node);
        break;
      case StepTaskKind::kHeadPass:
        JIGE_CHECK(node == head_node(), "node {} is not the head", node);
        head_pass(stream, {0, batch_.token_count()});
        break;
      case StepTaskKind::kBackwardInput:
        backward_input(stream, node);
        break;
      case StepTaskKind::kBackwardWeight:
        backward_weight(stream, node);
        break;
    }
  }
}

void Executor::evaluate(Stream& stream) {
  for (size_t node = 0; node <= head_node(); ++node) forward(stream, node);
}

void Executor::add_losses(Stream& stream, ExactSum& sum) {
  loader_.add_losses(stream, rows(losses_), sum);
}

void Executor::add_expert_use(Stream& stream, ExpertMeter& meter) const {
  for (size_t node = 0; node < head_node(); ++node) {
    meter.add(stream, batch_,
              {.node = node, .saved = saved_[node].view(), .compute = weights_->options().compute});
  }
}

std::vector<double> Executor::sequence_losses(Stream& stream) {
  return loader_.sequence_losses(stream, rows(losses_), batch_);
}

std::span<const float> Executor::token_losses(Stream& stream) {
  return loader_.token_losses(stream, rows(losses_));
}

void Executor::weigh_tokens(Stream& stream, std::span<const float> weights) {
  loader_.weigh_tokens(stream, weights, batch_);
}

void Executor::weigh_sequences(Stream& stream, std::span<const float> weights) {
  loader_.weigh_sequences(stream, weights, batch_);
}

}  // namespace jige::train
