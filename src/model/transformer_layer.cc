#include "model/transformer_layer.h"

#include <algorithm>
#include <cmath>

#include "model/rope_table.h"
#include "ops/elementwise.h"
#include "ops/rope.h"

namespace jige::model {
namespace {

// What attention scores are multiplied with in a layer.
double score_scale(const formats::ModelConfig& config, int64_t index) {
  if (config.score_scale > 0) return config.score_scale;
  const double dim = config.score_dim > 0 ? config.score_dim : static_cast<double>(config.head_dim);
  const double scale = config.scores_by_head_dim ? 1.0 / std::sqrt(dim) : 1.0;
  return config.scores_by_layer ? scale / static_cast<double>(index + 1) : scale;
}

}  // namespace

std::vector<ProjectionOptions::Part> TransformerLayer::qkv_parts(
    const formats::ModelConfig& config, const std::vector<std::string>& names) const {
  auto parts = fused_parts(names, {q_columns(), kv_columns(), kv_columns()});
  if (config.qkv_by_head) {
    parts[0].stored_rows = StoredRows{.a = heads_, .b = 3, .inner = head_dim_};
  }
  if (config.turns_neighbours) {
    const int64_t turned = turned_columns(config);
    StoredRows order{.outer = heads_, .a = turned / 2, .b = 2, .kept = head_dim_ - turned};
    parts[0].stored_rows = order;
    order.outer = kv_heads_;
    parts[1].stored_rows = order;
  }
  return parts;
}

TransformerLayer::TransformerLayer(const formats::ModelConfig& config, const LayerOptions& options)
    : name_("layer." + std::to_string(options.index)),
      index_(static_cast<uint64_t>(options.index)),
      width_(config.hidden_size),
      heads_(config.head_count),
      kv_heads_(config.kv_head_count),
      head_dim_(config.head_dim),
      score_scale_(score_scale(config, options.index)),
      score_cap_(config.score_cap),
      residual_scale_(static_cast<float>(config.residual_scale)),
      head_norms_(config.qk_norm || config.qk_norm_whole || config.qk_norm_apart),
      parallel_(config.residual != formats::ResidualForm::kSequential),
      one_norm_(config.residual == formats::ResidualForm::kParallelOneNorm),
      norms_before_(config.norm_place != formats::NormPlace::kAfter),
      norms_after_(config.norm_place != formats::NormPlace::kBefore) {
  place(config, static_cast<size_t>(options.index));
  const LayerNames& names = options.names;
  // GPT-2's rule: products that end in the residual stream start smaller, so that its variance does
  // not grow with depth.
  const double residual_std = 0.02 / std::sqrt(2.0 * static_cast<double>(config.layer_count));
  const auto make_norm = [&](const std::string& name) {
    return NormLayer(config, name, width_, config.norm_bias, params_);
  };
  if (norms_before_) norm1_ = make_norm(names.norm1);
  qkv_ = Projection({.parts = qkv_parts(config, names.qkv),
                     .inputs = width_,
                     .bias = config.qkv_bias,
                     .transposed = options.transposed,
                     .lora = options.lora},
                    params_);
  if (head_norms_) {
    q_norm_ = HeadNormLayer(config, names.q_norm, heads_, names.head_norms_stacked, params_);
    k_norm_ = HeadNormLayer(config, names.k_norm, kv_heads_, names.head_norms_stacked, params_);
  }
  if (config.attention_sinks) {
    sinks_ = params_.size();
    params_.push_back({.name = names.sinks, .shape = Shape{heads_}});
  }
  attention_output_ = Projection({.parts = {{names.attention_output, width_}},
                                  .inputs = q_columns(),
                                  .bias = config.output_bias,
                                  .transposed = options.transposed,
                                  .init_std = residual_std,
                                  .lora = options.lora},
                                 params_);
  if (norms_after_) norm1_after_ = make_norm(names.norm1_after);
  if (norms_before_) norm2_ = one_norm_ ? norm1_ : make_norm(names.norm2);
  if (formats::has_experts(config, options.index)) {
    experts_.emplace(config, names.experts, residual_std, params_);
    packed_ = PackedSizes(&qkv_, &attention_output_, &*experts_);
  } else {
    mlp_.emplace(config,
                 DenseMlpOptions{.input = names.ffn_input,
                                 .output = names.ffn_output,
                                 .size = config.ffn_size,
                                 .output_std = residual_std,
                                 .transposed = options.transposed,
                                 .lora = config.experts.count > 0 ? std::nullopt : options.lora},
                 params_);
    packed_ = PackedSizes(&qkv_, &attention_output_, &*mlp_);
  }
  if (norms_after_) norm2_after_ = make_norm(names.norm2_after);
}

void TransformerLayer::place(const formats::ModelConfig& config, size_t index) {
  const auto flagged = [&](const std::vector<uint8_t>& flags) {
    return index < flags.size() && flags[index];
  };
  if (config.layer_is_sliding.empty() || flagged(config.layer_is_sliding)) {
    window_ = config.sliding_window;
  }
  if (!flagged(config.layer_is_unturned)) turned_ = turned_columns(config);
  if (config.sliding_rope && window_ > 0) rope_begin_ = turned_;
  query_rope_begin_ = config.rope.query_growth > 0 ? turned_ : rope_begin_;
}

std::vector<const Projection*> TransformerLayer::projections() const {
  std::vector<const Projection*> all = {&qkv_, &attention_output_};
  if (mlp_) all.insert(all.end(), {&mlp_->input(), &mlp_->output()});
  return all;
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
  if (!parallel_) saved.x1 = at.take(DType::kF32, Shape{t, width_});
  saved.qkv = at.take(compute, Shape{t, qkv_columns()});
  saved.attended = at.take(compute, Shape{t, q_columns()});
  saved.lse = at.take(DType::kF32, Shape{t, heads_});
  place_ffn(at, saved, t, compute);
  if (norms_before_) {
    saved.stats1 = norm1_.place_stats(at, t);
    saved.stats2 = one_norm_ ? saved.stats1 : norm2_.place_stats(at, t);
  }
  if (head_norms_) {
    saved.stats_q = q_norm_.place_stats(at, t);
    saved.stats_k = k_norm_.place_stats(at, t);
  }
  if (norms_after_) {
    saved.o = at.take(compute, Shape{t, width_});
    saved.m = at.take(compute, Shape{t, width_});
    saved.stats_o = norm1_after_.place_stats(at, t);
    saved.stats_m = norm2_after_.place_stats(at, t);
  }
  saved.u_qkv = qkv_.place_product(at, t, compute);
  saved.u_attention_output = attention_output_.place_product(at, t, compute);
  return saved;
}

void TransformerLayer::place_ffn(Placement& at, Activations& views, int64_t token_count,
                                 DType compute) const {
  if (experts_) {
    views.experts = experts_->place_saved(at, token_count, compute);
  } else {
    views.mlp = mlp_->place_saved(at, token_count, compute);
  }
}

TransformerLayer::Activations TransformerLayer::place_unsaved(Placement& at, int64_t token_count,
                                                              DType compute) const {
  const int64_t t = token_count;
  Activations views;
  if (!parallel_) views.x1 = at.take(DType::kF32, Shape{t, width_});
  if (norms_after_) views.o = views.m = at.take(compute, Shape{t, width_});
  // The attention's results are gone when the MLP's begin.
  const int64_t begin = at.offset();
  views.qkv = at.take(compute, Shape{t, qkv_columns()});
  views.attended = at.take(compute, Shape{t, q_columns()});
  views.u_qkv = qkv_.place_product(at, t, compute);
  views.u_attention_output = attention_output_.place_product(at, t, compute);
  const int64_t attention_end = at.offset();
  at.rewind(begin);
  place_ffn(at, views, t, compute);
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
    pending.mlp = mlp_->place_pending(at, t, compute);
  }
  if (sinks_) pending.sinks = at.take(DType::kF32, Shape{t, heads_});
  pending.ffn_output = at.take(compute, Shape{t, width_});
  pending.n1 = at.take(compute, Shape{t, width_});
  pending.n2 = at.take(compute, Shape{t, width_});
  if (norms_after_) {
    pending.o_after = at.take(compute, Shape{t, width_});
    pending.m_after = at.take(compute, Shape{t, width_});
  }
  pending.v_qkv = qkv_.place_product(at, t, compute);
  pending.v_attention_output = attention_output_.place_product(at, t, compute);
  return pending;
}

TransformerLayer::Work TransformerLayer::place_work(Placement& at, int64_t token_count,
                                                    DType compute, bool training) const {
  Work work;
  const int64_t columns = std::max({width_, mlp_ ? mlp_->size() : 0, q_columns()});
  work.rows = at.take(compute, Shape{token_count, columns});
  if (parallel_) work.x1 = at.take(DType::kF32, Shape{token_count, width_});
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

DenseMlp::Work TransformerLayer::dense_work(const Work& work) const {
  return {.activated = first_columns(work.rows, mlp_->size()),
          .adapter_scratch = work.adapter_scratch,
          .weight_scratch = work.weight_scratch};
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
          .window = window_,
          .cap = score_cap_};
}

ops::AttentionShape TransformerLayer::attention_shape(const BlockWeights& weights) const {
  ops::AttentionShape shape = attention_shape();
  if (sinks_) shape.sinks = weights.params[*sinks_].value.as<float>();
  return shape;
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
  enter(stream, weights, norm1_, n1, src, views.stats1);
  qkv_.forward(stream, weights, compute,
               {.dst = views.qkv,
                .src = n1,
                .product = views.u_qkv,
                .scratch = work.adapter_scratch,
                .adapters = context.adapters});
  forward_attention(context, weights, batch, views, heads_of(views, work));
  attention_output_.forward(stream, weights, compute,
                            {.dst = norms_after_ ? views.o : dst,
                             .src = views.attended,
                             .product = views.u_attention_output,
                             .scratch = work.adapter_scratch,
                             .adapters = context.adapters});
  leave(stream, weights, batch, attention_part(views), dst);
  const TensorView& x1 = parallel_ ? work.x1 : views.x1;
  ops::add(stream, x1, src, dst);

  forward_ffn(context, weights, src, norms_after_ ? views.m : dst, views, work);
  leave(stream, weights, batch, ffn_part(views), dst);
  ops::add(stream, dst, x1, dst);
}

void TransformerLayer::forward_ffn(const BlockContext& context, const BlockWeights& weights,
                                   const TensorView& src, const TensorView& dst,
                                   const Activations& views, const Work& work) const {
  Stream& stream = context.stream;
  const DType compute = context.compute;
  const TensorView n2 = first_columns(work.rows, width_);
  if (!one_norm_) {  // else n1 is there still
    enter(stream, weights, norm2_, n2, ffn_source(src, views), views.stats2);
  }
  if (experts_) {
    experts_->forward(stream, weights, compute, dst, n2, views.experts, work.experts);
  } else {
    DenseMlp::Work dense = dense_work(work);
    dense.adapters = context.adapters;
    mlp_->forward(stream, weights, compute, dst, n2, views.mlp, dense);
  }
}

void TransformerLayer::enter(Stream& stream, const BlockWeights& weights, const NormLayer& norm,
                             const TensorView& dst, const TensorView& src,
                             const NormStats& stats) const {
  if (norms_before_) {
    norm.forward(stream, weights, dst, src, stats);
  } else {
    ops::scale(stream, dst, src, 1.0f);
  }
}

TransformerLayer::Part TransformerLayer::attention_part(const Activations& saved) const {
  return {
      .after = norm1_after_, .result = saved.o, .stats = saved.stats_o, .site = attention_site()};
}

TransformerLayer::Part TransformerLayer::ffn_part(const Activations& saved) const {
  return {.after = norm2_after_, .result = saved.m, .stats = saved.stats_m, .site = ffn_site()};
}

void TransformerLayer::leave(Stream& stream, const BlockWeights& weights, const Batch& batch,
                             const Part& part, const TensorView& dst) const {
  if (norms_after_) part.after.forward(stream, weights, dst, part.result, part.stats);
  if (batch.dropout.rate > 0) ops::dropout(stream, dst, dst, batch.dropout, part.site);
  if (residual_scale_ != 1.0f) ops::scale(stream, dst, dst, residual_scale_);
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
                                   .shape = attention_shape(weights)});
    return;
  }
  ops::attention_forward(stream, {.dst = saved.attended,
                                  .q = q,
                                  .k = k,
                                  .v = v,
                                  .lse = saved.lse,
                                  .sequences = batch.sequences,
                                  .shape = attention_shape(weights)});
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
  if (turned_ == 0) return;
  const auto turn = [&](const TensorView& data, int64_t begin) {
    ops::rope(stream, {.data = data,
                       .positions = batch.positions,
                       .cos_sin = weights.rope_table.column_range(begin, begin + turned_),
                       .head_dim = head_dim_,
                       .rotary_dim = turned_,
                       .inverse = inverse});
  };
  if (query_rope_begin_ == rope_begin_) return turn(heads, rope_begin_);
  turn(heads.column_range(0, q_columns()), query_rope_begin_);
  turn(heads.column_range(q_columns(), qk_columns()), rope_begin_);
}

}  // namespace jige::model
