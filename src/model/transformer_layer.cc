#include "model/transformer_layer.h"

#include <algorithm>
#include <cmath>

#include "ops/elementwise.h"

namespace jige::model {

namespace {

// Where a part of a layer is, or null.
template <typename Part>
Part* address(std::optional<Part>& part) {
  return part ? &*part : nullptr;
}

// Whether the layer has norms in this place, or around its parts.
bool has_norms(const formats::ModelConfig& config, int64_t layer, formats::NormPlace place) {
  const formats::NormPlace own = formats::norm_place(config, layer);
  return own == place || own == formats::NormPlace::kAround;
}

}  // namespace

TransformerLayer::TransformerLayer(const formats::ModelConfig& config, const LayerOptions& options)
    : name_("layer." + std::to_string(options.index)),
      index_(static_cast<uint64_t>(options.index)),
      width_(config.hidden_size),
      residual_scale_(static_cast<float>(config.residual_scale)),
      parallel_(config.residual != formats::ResidualForm::kSequential),
      one_norm_(config.residual == formats::ResidualForm::kParallelOneNorm),
      norms_before_(has_norms(config, options.index, formats::NormPlace::kBefore)),
      norms_after_(has_norms(config, options.index, formats::NormPlace::kAfter) ||
                   options.column_scales),
      norms_sums_(config.norm_place == formats::NormPlace::kSum),
      layout_(config),
      window_(formats::has_window(config, options.index)),
      shares_(formats::shares_keys(config, options.index)),
      gives_(formats::gives_keys(config, options.index)) {
  const LayerNames& names = options.names;
  // GPT-2's rule: products that end in the residual stream start smaller, so that its variance does
  // not grow with depth.
  const double residual_std = 0.02 / std::sqrt(2.0 * static_cast<double>(config.layer_count));
  const auto make_norm = [&](const std::string& name) {
    return NormLayer(config, name, width_, config.norm_bias, params_);
  };
  const auto make_after = [&](const std::string& name) {
    return options.column_scales ? NormLayer::of_scales(name, width_, params_) : make_norm(name);
  };
  if (formats::has_attention_part(config, options.index)) {
    const bool bare = config.bare_entry && options.index == 0;
    if (norms_before_ && !bare) norm1_ = make_norm(names.norm1);
    attention_ = make_attention(config, options, residual_std, params_);
    JIGE_CHECK(!norms_after_ || !attention_->has_output(), "a norm behind two products");
    attention_output_ = make_attention_output(config, options, *attention_, residual_std, params_);
    if (norms_after_ || norms_sums_) norm1_after_ = make_after(names.norm1_after);
  }
  if (formats::has_feed_forward(config, options.index)) {
    if (norms_before_) norm2_ = one_norm_ ? norm1_ : make_norm(names.norm2);
    make_ffn(config, options, residual_std);
    if (norms_after_ || norms_sums_) norm2_after_ = make_after(names.norm2_after);
  }
  if (config.layer_inputs.size > 0) {
    input_.emplace(config, names.input, residual_std, options.device, params_);
  }
  if (config.altup.streams > 0) altup_.emplace(config, names.altup, options.device, params_);
  if (config.laurel_rank > 0) {
    laurel_.emplace(config, names.laurel, residual_std, options.device, params_);
  }
  // Keys that an earlier layer gives, and this one or a later one reads.
  for (int64_t i = 0; i + 1 < config.layer_count && i < options.index; ++i) {
    if (formats::gives_keys(config, i)) passes_[formats::has_window(config, i)] = true;
  }
  if (config.layer_scales) {
    scale_ = params_.size();
    params_.push_back(
        {.name = names.scale, .shape = Shape{1}, .init = InitKind::kOne, .fixed = true});
  }
  packed_ = PackedSizes(attention_.get(), address(attention_output_), address(mlp_),
                        address(experts_), beside_ ? &beside_->experts() : nullptr, address(input_),
                        address(altup_), address(laurel_));
}

void TransformerLayer::make_ffn(const formats::ModelConfig& config, const LayerOptions& options,
                                double residual_std) {
  const LayerNames& names = options.names;
  const bool experts = formats::has_experts(config, options.index);
  if (experts && config.experts.beside_mlp) {
    beside_.emplace(config, names.beside, names.experts, residual_std, options.device, params_);
  } else if (experts) {
    experts_.emplace(config, names.experts, residual_std, options.device, params_);
  }
  if (!experts_) {
    mlp_.emplace(config,
                 DenseMlpOptions{.input = names.ffn_input,
                                 .output = names.ffn_output,
                                 .curve = names.ffn_curve,
                                 .size = formats::ffn_size_of(config, options.index),
                                 .output_std = residual_std,
                                 .gate_last = names.gate_last,
                                 .sparsity = formats::ffn_sparsity(config, options.index),
                                 .transposed = options.transposed,
                                 .activated_scale = options.activated_scale,
                                 .bounded = options.bounded,
                                 .lora = config.experts.count > 0 ? std::nullopt : options.lora,
                                 .device = options.device},
                 params_);
  }
}

std::vector<const Projection*> TransformerLayer::projections() const {
  std::vector<const Projection*> all;
  if (attention_) all = attention_->projections();
  if (attention_output_) all.push_back(&*attention_output_);
  if (mlp_) all.insert(all.end(), {&mlp_->input(), &mlp_->output()});
  return all;
}

std::vector<const Projection*> TransformerLayer::all_projections() const {
  std::vector<const Projection*> all = projections();
  if (input_) all.insert(all.end(), {&input_->gate(), &input_->projection()});
  const auto add = [&](const auto& more) { all.insert(all.end(), more.begin(), more.end()); };
  if (altup_) add(altup_->projections());
  if (laurel_) add(laurel_->projections());
  return all;
}

int64_t TransformerLayer::packed_bytes(DType compute, PackFor use, ops::WeightFormat format) const {
  return packed_.bytes(compute, use, format);
}

void TransformerLayer::pack(Stream& stream, const BlockWeights& weights, DType compute,
                            PackFor use) const {
  // Attention may pack more than its projections.
  if (attention_) attention_->pack(stream, weights, compute, use);
  const size_t of_attention = attention_ ? attention_->projections().size() : 0;
  const std::vector<const Projection*> all = all_projections();
  for (size_t i = of_attention; i < all.size(); ++i) all[i]->pack(stream, weights, compute, use);
  if (any_experts()) any_experts()->pack(stream, weights, compute, use);
}

int64_t TransformerLayer::strip_bytes(DType compute) const {
  int64_t bytes = any_experts() ? any_experts()->strip_bytes(compute) : 0;
  for (const Projection* p : all_projections()) {
    bytes = std::max(bytes, p->strip_bytes(compute));
  }
  return bytes;
}

void TransformerLayer::list_packs(const BlockWeights& weights, size_t param, DType compute,
                                  PackFor use, std::vector<ops::PackPart>& packs) const {
  for (const Projection* p : all_projections()) {
    p->list_packs(weights, param, compute, use, packs);
  }
  if (any_experts()) any_experts()->list_packs(weights, param, compute, use, packs);
}

AttentionMemory TransformerLayer::attention_memory(const Activations& views,
                                                   const Gradients& pending, const Work& work,
                                                   bool saves) const {
  return {.saved = saves ? views.attention : TensorView{},
          .pending = pending.attention,
          .workspace = saves ? work.attention : views.attention,
          .adapter_scratch = work.adapter_scratch,
          .weight_scratch = work.weight_scratch,
          .dropout = work.dropout};
}

double TransformerLayer::forward_flops(double token_count, double context_mean) const {
  double elements = 0;
  for (const Projection* p : all_projections()) {
    elements += static_cast<double>(p->inputs()) * static_cast<double>(p->outputs());
  }
  double flops = 2.0 * token_count * elements;
  if (any_experts()) flops += any_experts()->forward_flops(token_count);
  if (attention_) flops += attention_->forward_flops(token_count, context_mean);
  return flops;
}

void TransformerLayer::share_keys(AttentionMemory& memory, const Streams& streams) const {
  if (shares_) memory.shared = layout_.keys(streams.src, window_);
  if (gives_ && streams.dst) memory.shared = layout_.keys(streams.dst, window_);
  if ((shares_ || gives_) && streams.grad_src) {
    memory.grad_shared = layout_.keys(streams.grad_src, window_);
  }
}

void TransformerLayer::hand_on(const BlockContext& context, const TensorView& src,
                               const TensorView& dst) const {
  if (layout_.plain()) return;
  for (const bool window : {false, true}) {
    if (context.kv_cache.data || !passes_[window]) continue;
    ops::scale(context.stream, layout_.keys(dst, window), layout_.keys(src, window), 1.0f);
  }
  const auto next = static_cast<int64_t>(index_) + 1;
  const TensorView inputs = layout_.inputs_from(dst, next);
  if (inputs.columns() == 0) return;
  ops::scale(context.stream, inputs, layout_.inputs_from(src, next), 1.0f);
}

void TransformerLayer::forward(const BlockContext& context, const BlockWeights& weights,
                               const Batch& batch, const TensorView& whole_src,
                               const TensorView& whole_dst, const BlockMemory& memory) const {
  const int64_t t = batch.token_count();
  const DType compute = context.compute;
  Stream& stream = context.stream;
  const bool saves = bool(memory.saved);
  Placement workspace(context.workspace);
  Placement kept(memory.saved);
  const Activations views =
      saves ? place_saved(kept, t, compute) : place_unsaved(workspace, t, compute);
  const Work work = work_for(workspace, batch, t, compute, saves);
  hand_on(context, whole_src, whole_dst);
  if (altup_) {
    altup_->predict(stream, weights, compute, whole_dst, whole_src, views.altup, work.altup);
  }
  Streams streams{.src = whole_src,
                  .dst = whole_dst,
                  .rows = parts_source(whole_src, views),
                  .result = altup_ ? views.altup.result : layout_.residual(whole_dst)};
  streams.x1 = !attention_  ? streams.rows
               : !has_ffn() ? streams.result
               : parallel_  ? work.x1
                            : views.x1;
  forward_parts(context, weights, batch, streams, views, work, saves);
  if (altup_) altup_->correct(stream, weights, compute, whole_dst, views.altup, work.altup);
  if (input_) forward_input(stream, weights, compute, whole_src, whole_dst, views, work);
  if (!scale_) return;
  ops::scale_by(stream, streams.result, streams.result, weights.params[*scale_].value);
}

void TransformerLayer::forward_parts(const BlockContext& context, const BlockWeights& weights,
                                     const Batch& batch, const Streams& streams,
                                     const Activations& views, const Work& work, bool saves) const {
  Stream& stream = context.stream;
  const TensorView& dst = streams.result;
  if (attention_) forward_attention(context, weights, batch, streams, views, work, saves);
  if (!has_ffn()) return;
  const bool at_once = adds_at_once(batch) && !beside_;
  forward_ffn(context, weights, streams.rows,
              {.dst = norms_after_ ? views.m : dst,
               .addend = at_once ? streams.x1 : TensorView{},
               .saves = saves},
              views, work);
  leave(stream, weights, batch, ffn_part(views), dst);
  if (!at_once) ops::add(stream, dst, streams.x1, dst);
  if (norms_sums_) norm2_after_.forward(stream, weights, dst, dst, {});
}

void TransformerLayer::forward_input(Stream& stream, const BlockWeights& weights, DType compute,
                                     const TensorView& src, const TensorView& dst,
                                     const Activations& views, const Work& work) const {
  std::vector<TensorView> targets;
  for (int64_t i = altup_ ? 1 : 0; i < layout_.stream_count(); ++i) {
    targets.push_back(layout_.stream(dst, i));
  }
  input_->forward(stream, weights, compute, altup_ ? work.altup.scaled : layout_.residual(dst),
                  targets, layout_.input(src, static_cast<int64_t>(index_)), views.input,
                  work.input);
}

void TransformerLayer::forward_attention(const BlockContext& context, const BlockWeights& weights,
                                         const Batch& batch, const Streams& streams,
                                         const Activations& views, const Work& work,
                                         bool saves) const {
  Stream& stream = context.stream;
  const TensorView n1 = first_columns(work.rows, width_);
  const TensorView& src = streams.rows;
  const TensorView& dst = streams.result;
  const bool at_once = attention_output_ && adds_at_once(batch);
  const bool later = attention_->may_norm() && !one_norm_ && !laurel_ && leaves_norm(norm1_);
  ops::NormForward norm;
  if (later) norm = norm1_.task(weights, n1, src, views.stats1);
  if (!later) enter(stream, weights, norm1_, n1, src, views.stats1);
  AttentionMemory memory = attention_memory(views, {}, work, saves);
  if (later) memory.norm = &norm;
  if (!context.kv_cache.data) share_keys(memory, streams);
  attention_->forward(context, weights, batch, n1, attention_output_ ? views.attended : dst,
                      memory);
  if (attention_output_) {
    attention_output_->forward(stream, weights, context.compute,
                               {.dst = norms_after_ ? views.o
                                       : at_once    ? streams.x1
                                                    : dst,
                                .src = views.attended,
                                .product = views.u_attention_output,
                                .scratch = work.adapter_scratch,
                                .dropout = work.dropout,
                                .adapters = context.adapters,
                                .addend = at_once ? src : TensorView{}});
  }
  leave(stream, weights, batch, attention_part(views), dst);
  if (!at_once) ops::add(stream, streams.x1, src, dst);
  if (norms_sums_) norm1_after_.forward(stream, weights, streams.x1, streams.x1, {});
  if (laurel_) {
    laurel_->forward(stream, weights, context.compute, streams.x1, n1, views.laurel, work.laurel);
  }
}

void TransformerLayer::forward_ffn(const BlockContext& context, const BlockWeights& weights,
                                   const TensorView& src, const FfnResult& result,
                                   const Activations& views, const Work& work) const {
  Stream& stream = context.stream;
  const DType compute = context.compute;
  const TensorView& dst = result.dst;
  const TensorView n2 = first_columns(work.rows, width_);
  const TensorView& from = ffn_source(src, views);
  const bool later = mlp_ && !one_norm_ && leaves_norm(norm2_);
  ops::NormForward norm;
  if (later) norm = norm2_.task(weights, n2, from, views.stats2);
  if (!later && !one_norm_) enter(stream, weights, norm2_, n2, from, views.stats2);
  if (experts_) {
    experts_->forward(stream, weights, compute, {.dst = dst, .addend = result.addend}, n2,
                      views.experts, work.experts);
  } else {
    DenseMlp::Work dense = dense_work(work);
    dense.adapters = context.adapters;
    dense.saves = result.saves;
    dense.addend = result.addend;
    if (later) dense.norm = &norm;
    mlp_->forward(stream, weights, compute, beside_ ? views.beside.dense : dst, n2, views.mlp,
                  dense);
  }
  if (beside_) {
    beside_->forward(stream, weights, compute, dst, from, views.beside, work.beside);
  }
}

void TransformerLayer::enter(Stream& stream, const BlockWeights& weights, const NormLayer& norm,
                             const TensorView& dst, const TensorView& src,
                             const NormStats& stats) const {
  if (norm.exists()) {
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
  if (batch.dropout.rate > 0) drop(stream, dst, dst, batch, part.site);
  if (residual_scale_ != 1.0f) ops::scale(stream, dst, dst, residual_scale_);
}

}  // namespace jige::model
