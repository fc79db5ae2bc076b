#include "model/embedding.h"

#include <algorithm>

#include "model/placement.h"
#include "ops/elementwise.h"
#include "tensor/arena.h"

namespace jige::model {
namespace {

constexpr size_t kPositions = 1;
constexpr uint64_t kDropoutSite = 0;

// The residual stream's shape at the start of a buffer.
TensorView rows_in(const TensorView& buffer, int64_t token_count, int64_t width) {
  return Placement(buffer).take(DType::kF32, Shape{token_count, width});
}

}  // namespace

Embedding::Embedding(const EmbeddingOptions& options)
    : width_(options.width), scale_(static_cast<float>(options.scale)) {
  params_.push_back({.name = options.table_name + ".weight",
                     .shape = Shape{options.vocab_size, options.width},
                     .init_std = options.init_std,
                     .decay = true});
  if (!options.positions_name.empty()) {
    params_.push_back({.name = options.positions_name + ".weight",
                       .shape = Shape{options.position_count, options.width},
                       .init_std = options.init_std,
                       .decay = true});
  }
}

int64_t Embedding::pending_bytes(int64_t token_count, DType) const {
  return arena_bytes(DType::kF32, Shape{token_count, width_});
}

int64_t Embedding::workspace_bytes(int64_t token_count, DType, PackFor) const {
  return has_positions() ? arena_bytes(DType::kF32, Shape{token_count, width_}) : 0;
}

void Embedding::forward(const BlockContext& context, const BlockWeights& weights,
                        const Batch& batch, const TensorView&, const TensorView& dst,
                        const BlockMemory&) const {
  ops::embedding_forward(context.stream, dst, weights.params[kTable].value, batch.tokens);
  if (scale_ != 1.0f) ops::scale(context.stream, dst, dst, scale_);
  if (has_positions()) {
    const TensorView learned = rows_in(context.workspace, batch.token_count(), width_);
    ops::embedding_forward(context.stream, learned, weights.params[kPositions].value,
                           batch.positions);
    ops::add(context.stream, dst, dst, learned);
  }
  if (batch.dropout.rate > 0) ops::dropout(context.stream, dst, dst, batch.dropout, kDropoutSite);
}

void Embedding::backward_input(const BlockContext& context, const BlockWeights& weights,
                               const Batch& batch, const TensorView&, const TensorView& grad_dst,
                               const TensorView&, const BlockMemory& memory) const {
  const bool frozen = std::none_of(weights.params.begin(), weights.params.end(),
                                   [](const Param& param) { return bool(param.grad); });
  if (frozen) return;
  const TensorView kept = rows_in(memory.pending, batch.token_count(), width_);
  ops::dropout(context.stream, kept, grad_dst, batch.dropout, kDropoutSite);
}

void Embedding::backward_weight(const BlockContext& context, const BlockWeights& weights,
                                const Batch& batch, const TensorView&,
                                const BlockMemory& memory) const {
  const TensorView grad = rows_in(memory.pending, batch.token_count(), width_);
  if (has_positions() && weights.params[kPositions].grad) {
    ops::embedding_backward(context.stream, weights.params[kPositions].grad, grad, batch.positions);
  }
  const TensorView& grad_table = weights.params[kTable].grad;
  if (!grad_table) return;
  if (scale_ != 1.0f) ops::scale(context.stream, grad, grad, scale_);
  ops::embedding_backward(context.stream, grad_table, grad, batch.tokens);
}

}  // namespace jige::model
