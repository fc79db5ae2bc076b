#include "model/transformer_layer.h"

#include <algorithm>
#include <cmath>

#include "ops/elementwise.h"
#include "ops/rope.h"

namespace jige::model {
namespace {

std::vector<ProjectionOptions::Part> fused_parts(const std::vector<std::string>& names,
                                                 const std::vector<int64_t>& outputs) {
  if (names.size() == 1) {  // one module holds all of them
    int64_t sum = 0;
    for (const int64_t count : outputs) sum += count;
    return {{names[0], sum}};
  }
  std::vector<ProjectionOptions::Part> parts;
  for (size_t i = 0; i < names.size(); ++i) parts.push_back({names[i], outputs[i]});
  return parts;
}

}  // namespace

TransformerLayer::TransformerLayer(const formats::ModelConfig& config, const LayerOptions& options)
    : name_("layer." + std::to_string(options.index)),
      index_(static_cast<uint64_t>(options.index)),
      width_(config.hidden_size),
      heads_(config.head_count),
      kv_heads_(config.kv_head_count),
      head_dim_(config.head_dim),
      ffn_size_(config.experts.count > 0 ? 0 : config.ffn_size),
      activation_(config.activation),
      head_norms_(config.qk_norm) {
  const auto& flags = config.layer_is_sliding;
  const auto index = static_cast<size_t>(options.index);
  if (flags.empty() || (index < flags.size() && flags[index])) window_ = config.sliding_window;
  rotary_ = config.position == formats::PositionKind::kRotary;
  if (config.scores_by_head_dim) score_scale_ = 1.0 / std::sqrt(static_cast<double>(head_dim_));
  if (config.scores_by_layer) score_scale_ /= static_cast<double>(options.index + 1);
  const LayerNames& names = options.names;
  // GPT-2's rule: products that end in the residual stream start smaller, so that its variance does
  // not grow with depth.
  const double residual_std = 0.02 / std::sqrt(2.0 * static_cast<double>(config.layer_count));
  norm1_ = NormLayer(config.norm, config.norm_eps, names.norm1, width_, params_);
  qkv_ = Projection({.parts = fused_parts(names.qkv, {q_columns(), kv_columns(), kv_columns()}),
                     .inputs = width_,
                     .bias = config.qkv_bias,
                     .transposed = options.transposed,
                     .lora = options.lora},
                    params_);
  if (head_norms_) {
    q_norm_ = NormLayer(config.norm, config.norm_eps, names.q_norm, head_dim_, params_);
    k_norm_ = NormLayer(config.norm, config.norm_eps, names.k_norm, head_dim_, params_);
  }
  attention_output_ = Projection({.parts = {{names.attention_output, width_}},
                                  .inputs = q_columns(),
                                  .bias = config.output_bias,
                                  .transposed = options.transposed,
                                  .init_std = residual_std,
                                  .lora = options.lora},
                                 params_);
  norm2_ = NormLayer(config.norm, config.norm_eps, names.norm2, width_, params_);
  add_ffn(config, options, residual_std);
}

void TransformerLayer::add_ffn(const formats::ModelConfig& config, const LayerOptions& options,
                               double residual_std) {
  const LayerNames& names = options.names;
  if (config.experts.count > 0) {
    experts_.emplace(config, names.experts, residual_std, params_);
    packed_ = PackedSizes(&qkv_, &attention_output_, &*experts_);
    return;
  }
  ffn_input_ =
      Projection({.parts = fused_parts(names.ffn_input, {ffn_size_, gated() ? ffn_size_ : 0}),
                  .inputs = width_,
                  .bias = config.mlp_bias,
                  .transposed = options.transposed,
                  .lora = options.lora},
                 params_);
  ffn_output_ = Projection({.parts = {{names.ffn_output, width_}},
                            .inputs = ffn_size_,
                            .bias = config.mlp_bias,
                            .transposed = options.transposed,
                            .init_std = residual_std,
                            .lora = options.lora},
                           params_);
  packed_ = PackedSizes(&qkv_, &attention_output_, &ffn_input_, &ffn_output_);
}

std::vector<const Projection*> TransformerLayer::projections() const {
  if (experts_) return {&qkv_, &attention_output_};
  return {&qkv_, &attention_output_, &ffn_input_, &ffn_output_};
}

int64_t TransformerLayer::packed_bytes(DType compute, PackFor use, ops::WeightFormat format) const {
  return packed_.bytes(compute, use, format);
}

void TransformerLayer::pack(Stream& stream, const BlockWeights& weights, DType compute,
                            PackFor use) const {
  for (const Projection* p : projections()) {
    p->pack(stream, weights, compute, use);
  }
  if (experts_) experts_->pack(stream, weights, compute, use);
}

int64_t TransformerLayer::strip_bytes(DType compute) const {
  int64_t bytes = experts_ ? experts_->strip_bytes(compute) : 0;
  for (const Projection* p : projections()) {
    bytes = std::max(bytes, p->strip_bytes(compute));
  }
  return bytes;
}

void TransformerLayer::list_packs(const BlockWeights& weights, size_t param, DType compute,
                                  PackFor use, std::vector<ops::PackPart>& packs) const {
  for (const Projection* p : projections()) {
    p->list_packs(weights, param, compute, use, packs);
  }
  if (experts_) experts_->list_packs(weights, param, compute, use, packs);
}

TransformerLayer::Activations TransformerLayer::place_saved(Placement& at, int64_t token_count,
                                                            DType compute) const {
  const int64_t t = token_count;
  Activations saved;
  saved.x1 = at.take(DType::kF32, Shape{t, width_});
  saved.qkv = at.take(compute, Shape{t, qkv_columns()});
  saved.attended = at.take(compute, Shape{t, q_columns()});
  saved.lse = at.take(DType::kF32, Shape{t, heads_});
  if (experts_) {
    saved.experts = experts_->place_saved(at, t, compute);
  } else {
    saved.ffn = at.take(compute, Shape{t, ffn_columns()});
  }
  saved.stats1 = norm1_.place_stats(at, t);
  saved.stats2 = norm2_.place_stats(at, t);
  if (head_norms_) {
    saved.stats_q = q_norm_.place_stats(at, t, heads_);
    saved.stats_k = k_norm_.place_stats(at, t, kv_heads_);
  }
  saved.u_qkv = qkv_.place_product(at, t, compute);
  saved.u_attention_output = attention_output_.place_product(at, t, compute);
  saved.u_ffn_input = ffn_input_.place_product(at, t, compute);
  saved.u_ffn_output = ffn_output_.place_product(at, t, compute);
  return saved;
}

TransformerLayer::Activations TransformerLayer::place_unsaved(Placement& at, int64_t token_count,
                                                              DType compute) const {
  const int64_t t = token_count;
  Activations views;
  views.x1 = at.take(DType::kF32, Shape{t, width_});
  // The attention's results are gone when the MLP's begin.
  const int64_t begin = at.offset();
  views.qkv = at.take(compute, Shape{t, qkv_columns()});
  views.attended = at.take(compute, Shape{t, q_columns()});
  views.u_qkv = qkv_.place_product(at, t, compute);
  views.u_attention_output = attention_output_.place_product(at, t, compute);
  const int64_t attention_end = at.offset();
  at.rewind(begin);
  if (experts_) {
    views.experts = experts_->place_saved(at, t, compute);
  } else {
    views.ffn = at.take(compute, Shape{t, ffn_columns()});
  }
  views.u_ffn_input = ffn_input_.place_product(at, t, compute);
  views.u_ffn_output = ffn_output_.place_product(at, t, compute);
  at.rewind(std::max(attention_end, at.offset()));
  return views;
}

TransformerLayer::Gradients TransformerLayer::place_pending(Placement& at, int64_t token_count,
                                                            DType compute) const {
  const int64_t t = token_count;
  Gradients pending;
  pending.qkv = at.take(compute, Shape{t, qkv_columns()});
  if (head_norms_) pending.heads = at.take(compute, Shape{t, qk_columns()});
  pending.attention_output = at.take(compute, Shape{t, width_});
  if (experts_) {
    pending.experts = experts_->place_pending(at, t, compute);
  } else {
    pending.ffn = at.take(compute, Shape{t, ffn_columns()});
  }
  pending.ffn_output = at.take(compute, Shape{t, width_});
  pending.n1 = at.take(compute, Shape{t, width_});
  pending.n2 = at.take(compute, Shape{t, width_});
  pending.v_qkv = qkv_.place_product(at, t, compute);
  pending.v_attention_output = attention_output_.place_product(at, t, compute);
  pending.v_ffn_input = ffn_input_.place_product(at, t, compute);
  pending.v_ffn_output = ffn_output_.place_product(at, t, compute);
  return pending;
}

TransformerLayer::Work TransformerLayer::place_work(Placement& at, int64_t token_count,
                                                    DType compute, bool training) const {
  Work work;
  const int64_t columns = std::max({width_, ffn_size_, q_columns()});
  work.rows = at.take(compute, Shape{token_count, columns});
  if (head_norms_ && training) {
    work.heads = at.take(compute, Shape{token_count, qk_columns()});
  }
  int64_t scratch_bytes = 0;
  int64_t weight_bytes = 0;
  for (const Projection* p : projections()) {
    scratch_bytes = std::max(scratch_bytes, p->scratch_bytes(token_count));
    weight_bytes = std::max(weight_bytes, p->weight_scratch_bytes(token_count, compute));
  }
  if (scratch_bytes > 0) work.adapter_scratch = at.take(DType::kU8, Shape{scratch_bytes});
  if (training && weight_bytes > 0) work.weight_scratch = at.take(DType::kU8, Shape{weight_bytes});
  if (experts_) work.experts = experts_->place_work(at, token_count, compute, training);
  return work;
}

int64_t TransformerLayer::saved_bytes(int64_t token_count, DType compute) const {
  Placement at;
  place_saved(at, token_count, compute);
  return at.peak_bytes();
}

int64_t TransformerLayer::pending_bytes(int64_t token_count, DType compute) const {
  Placement at;
  place_pending(at, token_count, compute);
  return at.peak_bytes();
}

int64_t TransformerLayer::workspace_bytes(int64_t token_count, DType compute, PackFor use) const {
  Placement at;
  const bool training = use == PackFor::kTraining;
  if (!training) place_unsaved(at, token_count, compute);
  place_work(at, token_count, compute, training);
  return at.peak_bytes();
}

int64_t TransformerLayer::thread_scratch_bytes(int64_t token_count, DType compute, int threads,
                                               bool frozen_base) const {
  int64_t bytes = ops::attention_scratch_bytes(attention_shape(), token_count);
  if (experts_) {
    bytes =
        std::max(bytes, experts_->thread_scratch_bytes(token_count, compute, threads, frozen_base));
  }
  for (const Projection* projection : projections()) {
    bytes = std::max(bytes,
                     projection->thread_scratch_bytes(token_count, compute, threads, frozen_base));
  }
  return bytes;
}

TensorView TransformerLayer::heads_of(const Activations& saved, const Work& work) const {
  return work.heads ? work.heads : saved.qkv.column_range(0, qk_columns());
}

ops::AttentionShape TransformerLayer::attention_shape() const {
  return {.head_count = heads_,
          .kv_head_count = kv_heads_,
          .head_dim = head_dim_,
          .scale = score_scale_,
          .window = window_};
}

double TransformerLayer::forward_flops(double token_count, double context_mean) const {
  double elements = 0;
  for (const Projection* p : projections()) {
    elements += static_cast<double>(p->inputs()) * static_cast<double>(p->outputs());
  }
  const double window = window_ > 0 ? static_cast<double>(window_) : context_mean;
  const double context = std::min(context_mean, window);
  return 2.0 * token_count * elements + (experts_ ? experts_->forward_flops(token_count) : 0.0) +
         4.0 * token_count * context * static_cast<double>(q_columns());
}

void TransformerLayer::forward(const BlockContext& context, const BlockWeights& weights,
                               const Batch& batch, const TensorView& src, const TensorView& dst,
                               const BlockMemory& memory) const {
  const int64_t t = batch.token_count();
  const DType compute = context.compute;
  Stream& stream = context.stream;
  const bool saves = bool(memory.saved);
  Placement workspace(context.workspace);
  Placement kept(memory.saved);
  const Activations views =
      saves ? place_saved(kept, t, compute) : place_unsaved(workspace, t, compute);
  const Work work = place_work(workspace, t, compute, saves);

  const TensorView n1 = first_columns(work.rows, width_);
  norm1_.forward(stream, weights, n1, src, views.stats1);
  qkv_.forward(
      stream, weights, compute,
      {.dst = views.qkv, .src = n1, .product = views.u_qkv, .scratch = work.adapter_scratch});
  forward_attention(context, weights, batch, views, heads_of(views, work));
  attention_output_.forward(stream, weights, compute,
                            {.dst = dst,
                             .src = views.attended,
                             .product = views.u_attention_output,
                             .scratch = work.adapter_scratch});
  if (batch.dropout.rate > 0) ops::dropout(stream, dst, dst, batch.dropout, attention_site());
  ops::add(stream, views.x1, src, dst);

  forward_ffn(context, weights, dst, views, work);
  if (batch.dropout.rate > 0) ops::dropout(stream, dst, dst, batch.dropout, ffn_site());
  ops::add(stream, dst, views.x1, dst);
}

void TransformerLayer::forward_ffn(const BlockContext& context, const BlockWeights& weights,
                                   const TensorView& dst, const Activations& views,
                                   const Work& work) const {
  Stream& stream = context.stream;
  const DType compute = context.compute;
  const TensorView n2 = first_columns(work.rows, width_);
  norm2_.forward(stream, weights, n2, views.x1, views.stats2);
  if (experts_) {
    experts_->forward(stream, weights, compute, dst, n2, views.experts, work.experts);
    return;
  }
  ffn_input_.forward(stream, weights, compute,
                     {.dst = views.ffn,
                      .src = n2,
                      .product = views.u_ffn_input,
                      .scratch = work.adapter_scratch,
                      .past_caches = true});
  const TensorView activated = first_columns(work.rows, ffn_size_);
  activate(stream, activated, views.ffn);
  ffn_output_.forward(stream, weights, compute,
                      {.dst = dst,
                       .src = activated,
                       .product = views.u_ffn_output,
                       .scratch = work.adapter_scratch});
}

void TransformerLayer::forward_attention(const BlockContext& context, const BlockWeights& weights,
                                         const Batch& batch, const Activations& saved,
                                         const TensorView& heads) const {
  Stream& stream = context.stream;
  normalise_heads(stream, weights, heads, saved.qkv, saved.stats_q, saved.stats_k);
  rotate(stream, weights, batch, heads, false);
  const TensorView q = heads.column_range(0, q_columns());
  const TensorView k = heads.column_range(q_columns(), qk_columns());
  const TensorView v = saved.qkv.column_range(qk_columns(), qkv_columns());
  if (context.kv_cache.data) {
    ops::kv_append(stream, context.kv_cache, k, v, batch.sequences);
    ops::attention_cached(stream, {.dst = saved.attended,
                                   .q = q,
                                   .cache = context.kv_cache,
                                   .sequences = batch.sequences,
                                   .shape = attention_shape()});
    return;
  }
  ops::attention_forward(stream, {.dst = saved.attended,
                                  .q = q,
                                  .k = k,
                                  .v = v,
                                  .lse = saved.lse,
                                  .sequences = batch.sequences,
                                  .shape = attention_shape()});
}

void TransformerLayer::normalise_heads(Stream& stream, const BlockWeights& weights,
                                       const TensorView& heads, const TensorView& qkv,
                                       const NormStats& stats_q, const NormStats& stats_k) const {
  if (!head_norms_) return;
  q_norm_.forward(stream, weights, heads.column_range(0, q_columns()),
                  qkv.column_range(0, q_columns()), stats_q);
  k_norm_.forward(stream, weights, heads.column_range(q_columns(), qk_columns()),
                  qkv.column_range(q_columns(), qk_columns()), stats_k);
}

void TransformerLayer::rotate(Stream& stream, const BlockWeights& weights, const Batch& batch,
                              const TensorView& heads, bool inverse) const {
  if (!rotary_) return;
  ops::rope(stream, {.data = heads,
                     .positions = batch.positions,
                     .cos_sin = weights.rope_table,
                     .head_dim = head_dim_,
                     .rotary_dim = head_dim_,
                     .inverse = inverse});
}

void TransformerLayer::activate(Stream& stream, const TensorView& dst,
                                const TensorView& ffn) const {
  if (gated()) {
    ops::swiglu_forward(stream, dst, ffn);
  } else {
    ops::activation_forward(stream, dst, ffn, plain_activation());
  }
}

ops::Activation TransformerLayer::plain_activation() const {
  switch (activation_) {
    case formats::ActivationKind::kGeluErf:
      return ops::Activation::kGeluErf;
    case formats::ActivationKind::kRelu:
      return ops::Activation::kRelu;
    case formats::ActivationKind::kSilu:
      return ops::Activation::kSilu;
    default:
      return ops::Activation::kGeluTanh;
  }
}

}  // namespace jige::model
