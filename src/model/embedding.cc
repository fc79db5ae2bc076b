#include "model/embedding.h"

#include <algorithm>
#include <cmath>

#include "model/given_row.h"
#include "ops/elementwise.h"
#include "tensor/arena.h"

namespace jige::model {
namespace {

constexpr size_t kPositions = 1;
constexpr uint64_t kDropoutSite = 0;

}  // namespace

Embedding::Embedding(const EmbeddingOptions& options)
    : width_(options.width),
      scale_(static_cast<float>(options.scale)),
      position_offset_(options.position_offset) {
  const auto add_table = [&](const std::string& name, int64_t rows) {
    params_.push_back({.name = name + ".weight",
                       .shape = Shape{rows, options.width},
                       .init_std = options.init_std,
                       .decay = true});
  };
  add_table(options.table_name, options.vocab_size);
  if (!options.positions_name.empty()) {
    position_count_ = options.position_count;
    add_table(options.positions_name, options.position_offset + options.position_count);
  }
  if (!options.types_name.empty()) {
    types_ = params_.size();
    add_table(options.types_name, options.type_count);
  }
  if (!options.norm_of) return;
  norm_.emplace(*options.norm_of, options.norm_name, width_, options.norm_of->norm_bias, params_);
}

Embedding::Embedding(const EmbeddingOptions& options, const formats::ModelConfig& config,
                     const LayerInputsNames& names)
    : Embedding(options) {
  const formats::LayerInputConfig& sizes = config.layer_inputs;
  Inputs& inputs = inputs_.emplace();
  inputs.layout = StreamLayout(config);
  inputs.layer_count = config.layer_count;
  inputs.columns = config.layer_count * sizes.size;
  inputs.table = params_.size();
  params_.push_back({.name = names.table + ".weight",
                     .shape = Shape{sizes.vocab_size, inputs.columns},
                     .init_std = options.init_std,
                     .decay = true});
  inputs.projection = Projection(
      {.parts = {{names.projection, inputs.columns}}, .inputs = width_, .device = options.device},
      params_);
  inputs.norm = NormLayer(config, names.norm, sizes.size, false, params_);
  inputs.product_scale = 1.0f / std::sqrt(static_cast<float>(width_));
  inputs.table_scale = std::sqrt(static_cast<float>(sizes.size));
  inputs.vocab_size = sizes.vocab_size;
  if (config.altup.streams > 0) split_.emplace(config, names.streams, options.device, params_);
  packed_ = PackedSizes(&inputs.projection, split_ ? &*split_ : nullptr);
}

void Embedding::pack(Stream& stream, const BlockWeights& weights, DType compute,
                     PackFor use) const {
  if (inputs_) inputs_->projection.pack(stream, weights, compute, use);
  if (split_) split_->pack(stream, weights, compute, use);
}

int64_t Embedding::strip_bytes(DType compute) const {
  const int64_t bytes = inputs_ ? inputs_->projection.strip_bytes(compute) : 0;
  return split_ ? std::max(bytes, split_->strip_bytes(compute)) : bytes;
}

void Embedding::list_packs(const BlockWeights& weights, size_t param, DType compute, PackFor use,
                           std::vector<ops::PackPart>& packs) const {
  if (inputs_) inputs_->projection.list_packs(weights, param, compute, use, packs);
  if (split_) split_->list_packs(weights, param, compute, use, packs);
}

Embedding::Saved Embedding::place_saved(Placement& at, int64_t token_count, DType compute,
                                        bool stats) const {
  Saved saved;
  if (norm_ && stats) {  // in place where nothing is saved
    saved.unnormed = at.take(DType::kF32, Shape{token_count, width_});
    saved.norm_stats = norm_->place_stats(at, token_count, 1);
  }
  if (!inputs_) return saved;
  saved.rows = at.take(compute, Shape{token_count, width_});
  saved.product = at.take(DType::kF32, Shape{token_count, inputs_->columns});
  if (stats) saved.stats = inputs_->norm.place_stats(at, token_count, inputs_->layer_count);
  if (split_) saved.split = split_->place_saved(at, token_count, compute);
  return saved;
}

Embedding::Pending Embedding::place_pending(Placement& at, int64_t token_count,
                                            DType compute) const {
  Pending pending;
  pending.rows = at.take(DType::kF32, Shape{token_count, width_});
  if (!inputs_) return pending;
  pending.inputs = at.take(DType::kF32, Shape{token_count, inputs_->columns});
  pending.product = at.take(compute, Shape{token_count, inputs_->columns});
  if (split_) pending.split = split_->place_pending(at, token_count, compute);
  return pending;
}

Embedding::Work Embedding::place_work(Placement& at, int64_t token_count, DType compute,
                                      PackFor use) const {
  Work work;
  if (has_places()) work.rows = at.take(DType::kF32, Shape{token_count, width_});
  if (types_) work.tokens = at.take(DType::kI32, Shape{token_count});
  if (!inputs_) return work;
  work.inputs = at.take(DType::kF32, Shape{token_count, inputs_->columns});
  work.tokens = at.take(DType::kI32, Shape{token_count});
  const bool training = use == PackFor::kTraining;
  if (split_) work.split = split_->place_work(at, token_count, compute, training);
  if (use == PackFor::kInference) return work;
  work.rows = at.take(compute, Shape{token_count, width_});
  const int64_t scratch = inputs_->projection.weight_scratch_bytes(token_count, compute);
  if (scratch > 0) work.scratch = at.take(DType::kU8, Shape{scratch});
  return work;
}

int64_t Embedding::saved_bytes(int64_t token_count, DType compute) const {
  Placement at;
  place_saved(at, token_count, compute, true);
  return at.peak_bytes();
}

int64_t Embedding::pending_bytes(int64_t token_count, DType compute) const {
  Placement at;
  place_pending(at, token_count, compute);
  return at.peak_bytes();
}

int64_t Embedding::workspace_bytes(int64_t token_count, DType compute, PackFor use) const {
  Placement at;
  if (use == PackFor::kInference) place_saved(at, token_count, compute, false);
  place_work(at, token_count, compute, use);
  return at.peak_bytes();
}

int64_t Embedding::thread_scratch_bytes(int64_t token_count, DType compute, int threads,
                                        bool frozen_base) const {
  if (!inputs_) return 0;
  const int64_t bytes =
      inputs_->projection.thread_scratch_bytes(token_count, compute, threads, frozen_base);
  if (!split_) return bytes;
  return std::max(bytes, split_->thread_scratch_bytes(token_count, compute, threads, frozen_base));
}

double Embedding::forward_flops(double token_count, double) const {
  if (!inputs_) return 0;
  const double streams = split_ ? split_->forward_flops(token_count) : 0;
  return streams +
         2.0 * token_count * static_cast<double>(width_) * static_cast<double>(inputs_->columns);
}

void Embedding::forward(const BlockContext& context, const BlockWeights& weights,
                        const Batch& batch, const TensorView&, const TensorView& dst,
                        const BlockMemory& memory) const {
  Stream& stream = context.stream;
  const TensorView rows = residual(dst);
  Saved saved;
  if (norm_ && memory.saved) {
    Placement kept(memory.saved);
    saved = place_saved(kept, batch.token_count(), context.compute, true);
  }
  const TensorView read = saved.unnormed ? saved.unnormed : rows;
  ops::embedding_forward(stream, read, weights.params[kTable].value, batch.tokens);
  if (scale_ != 1.0f) ops::scale(stream, read, read, scale_);
  if (has_places()) add_places(context, weights, batch, read);
  if (norm_) norm_->forward(stream, weights, rows, read, saved.norm_stats);
  const auto put_given = [&] {
    put_given_rows(stream, std::span(batch.given, batch.given_count), rows, batch.first_row);
  };
  if (inputs_) {
    put_given();
    make_inputs(context, weights, batch, dst, memory);
  }
  if (batch.dropout.rate > 0) drop(stream, rows, rows, batch, kDropoutSite);
  if (!inputs_) put_given();
  if (split_) make_streams(context, weights, dst, memory);
}

void Embedding::add_places(const BlockContext& context, const BlockWeights& weights,
                           const Batch& batch, const TensorView& rows) const {
  Stream& stream = context.stream;
  Placement workspace(context.workspace);
  const Work work =
      place_work(workspace, batch.token_count(), context.compute, PackFor::kInference);
  if (has_positions()) {
    const TensorView& table = weights.params[kPositions].value;
    ops::embedding_forward(stream, work.rows, table.row_range(position_offset_, table.rows()),
                           batch.positions);
    ops::add(stream, rows, rows, work.rows);
  }
  if (!types_) return;
  ops::zero(stream, work.tokens);
  const TensorView& types = weights.params[*types_].value;
  ops::embedding_forward(stream, work.rows, types, work.tokens);
  for (const ops::SequenceSpan& sequence : batch.sequences) {
    const int64_t end = int64_t{sequence.row_begin} + sequence.row_count;
    const int64_t begin = sequence.row_begin + std::max<int64_t>(0, int64_t{sequence.second_begin} -
                                                                        sequence.context_count);
    if (begin >= end) continue;
    // Row 0 of the table without its first row.
    ops::embedding_forward(stream, work.rows.row_range(begin, end),
                           types.row_range(1, types.rows()), work.tokens.row_range(begin, end));
  }
  ops::add(stream, rows, rows, work.rows);
}

void Embedding::make_streams(const BlockContext& context, const BlockWeights& weights,
                             const TensorView& dst, const BlockMemory& memory) const {
  const bool saves = bool(memory.saved);
  Placement workspace(context.workspace);
  Placement kept(memory.saved);
  const Saved saved = place_saved(saves ? kept : workspace, dst.rows(), context.compute, saves);
  split_->forward(context.stream, weights, context.compute, dst, saved.split);
}

TensorView Embedding::input_tokens(Stream& stream, const Batch& batch, const Work& work) const {
  if (inputs_->vocab_size >= params_[kTable].shape[0]) return batch.tokens;
  ops::known_tokens(stream, work.tokens, batch.tokens, inputs_->vocab_size);
  return work.tokens;
}

void Embedding::make_inputs(const BlockContext& context, const BlockWeights& weights,
                            const Batch& batch, const TensorView& dst,
                            const BlockMemory& memory) const {
  Stream& stream = context.stream;
  const int64_t t = batch.token_count();
  const DType compute = context.compute;
  const bool saves = bool(memory.saved);
  Placement workspace(context.workspace);
  Placement kept(memory.saved);
  const Saved saved = place_saved(saves ? kept : workspace, t, compute, saves);
  const Work work =
      place_work(workspace, t, compute, saves ? PackFor::kTraining : PackFor::kInference);
  ops::scale(stream, saved.rows, residual(dst), 1.0f);
  inputs_->projection.forward(stream, weights, compute, {.dst = saved.product, .src = saved.rows});
  ops::scale(stream, saved.product, saved.product, inputs_->product_scale);
  inputs_->norm.forward(stream, weights, work.inputs, saved.product, saved.stats);
  const TensorView inputs = inputs_->layout.inputs_from(dst, 0);
  ops::embedding_forward(stream, inputs, weights.params[inputs_->table].value,
                         input_tokens(stream, batch, work));
  ops::scale(stream, inputs, inputs, inputs_->table_scale);
  ops::add(stream, inputs, inputs, work.inputs);
  ops::scale(stream, inputs, inputs, std::sqrt(0.5f));
}

void Embedding::backward_input(const BlockContext& context, const BlockWeights& weights,
                               const Batch& batch, const TensorView&, const TensorView& grad_dst,
                               const TensorView&, const BlockMemory& memory) const {
  const bool frozen = std::none_of(weights.params.begin(), weights.params.end(),
                                   [](const Param& param) { return bool(param.grad); });
  if (frozen) return;
  Placement left(memory.pending);
  const TensorView kept = place_pending(left, batch.token_count(), context.compute).rows;
  if (split_) {
    const auto [saved, pending, work] = place_backward(context, memory, batch.token_count());
    split_->backward_input(context.stream, weights, context.compute, kept, grad_dst, saved.split,
                           pending.split, work.split);
  }
  drop(context.stream, kept, split_ ? kept : residual(grad_dst), batch, kDropoutSite);
  if (inputs_) backward_inputs(context, weights, grad_dst, memory);
  zero_given(context.stream, batch, kept);
  if (norm_) {
    const Saved saved = place_backward(context, memory, batch.token_count()).saved;
    norm_->backward_input(context.stream, weights, kept, kept, saved.unnormed, saved.norm_stats,
                          false);
  }
}

void Embedding::zero_given(Stream& stream, const Batch& batch, const TensorView& rows) const {
  for (const GivenRow& given : std::span(batch.given, batch.given_count)) {
    const int64_t row = given.row - batch.first_row;
    ops::zero(stream, rows.row_range(row, row + 1));
  }
}

Embedding::BackwardMemory Embedding::place_backward(const BlockContext& context,
                                                    const BlockMemory& memory,
                                                    int64_t token_count) const {
  Placement kept(memory.saved);
  Placement left(memory.pending);
  Placement workspace(context.workspace);
  return {.saved = place_saved(kept, token_count, context.compute, true),
          .pending = place_pending(left, token_count, context.compute),
          .work = place_work(workspace, token_count, context.compute, PackFor::kTraining)};
}

void Embedding::backward_inputs(const BlockContext& context, const BlockWeights& weights,
                                const TensorView& grad_dst, const BlockMemory& memory) const {
  Stream& stream = context.stream;
  const DType compute = context.compute;
  const auto [saved, pending, work] = place_backward(context, memory, grad_dst.rows());
  ops::scale(stream, pending.inputs, inputs_->layout.inputs_from(grad_dst, 0), std::sqrt(0.5f));
  inputs_->norm.backward_input(stream, weights, work.inputs, pending.inputs, saved.product,
                               saved.stats, false);
  ops::scale(stream, pending.product, work.inputs, inputs_->product_scale);
  inputs_->projection.backward_input(stream, weights, compute,
                                     {.grad_src = work.rows, .grad_dst = pending.product});
  ops::add(stream, pending.rows, pending.rows, work.rows);
}

void Embedding::backward_weight(const BlockContext& context, const BlockWeights& weights,
                                const Batch& batch, const TensorView&,
                                const BlockMemory& memory) const {
  const RowCut rows = context.weight_cut(batch.token_count());
  Placement left(memory.pending, rows);
  const TensorView grad = place_pending(left, batch.token_count(), context.compute).rows;
  if (has_positions() && weights.params[kPositions].grad) {
    const TensorView& table = weights.params[kPositions].grad;
    ops::embedding_backward(context.stream, table.row_range(position_offset_, table.rows()), grad,
                            batch.positions.row_range(rows.begin, rows.end));
  }
  if (inputs_) input_gradients(context, weights, batch, memory);
  if (split_) {
    const auto [saved, pending, work] = place_backward(context, memory, batch.token_count());
    split_->backward_weight(context.stream, weights, context.compute, context.gradients,
                            saved.split, pending.split, work.split);
  }
  const TensorView& grad_table = weights.params[kTable].grad;
  if (!grad_table) return;
  if (scale_ != 1.0f) ops::scale(context.stream, grad, grad, scale_);
  ops::embedding_backward(context.stream, grad_table, grad,
                          batch.tokens.row_range(rows.begin, rows.end));
}

void Embedding::input_gradients(const BlockContext& context, const BlockWeights& weights,
                                const Batch& batch, const BlockMemory& memory) const {
  Stream& stream = context.stream;
  const DType compute = context.compute;
  const auto [saved, pending, work] = place_backward(context, memory, batch.token_count());
  inputs_->norm.backward_weight(stream, weights, pending.inputs, saved.product, saved.stats);
  if (inputs_->projection.wants_gradient(weights)) {
    inputs_->projection.backward_weight(stream, weights, compute,
                                        {.grad_dst = pending.product,
                                         .src = saved.rows,
                                         .product_forward = {},
                                         .product_backward = {},
                                         .scratch = work.scratch,
                                         .gradients = context.gradients});
  }
  const TensorView& grad_table = weights.params[inputs_->table].grad;
  if (!grad_table) return;
  zero_given(stream, batch, pending.inputs);
  ops::scale(stream, pending.inputs, pending.inputs, inputs_->table_scale);
  ops::embedding_backward(stream, grad_table, pending.inputs, input_tokens(stream, batch, work));
}

}  // namespace jige::model
