#include "model/latent_attention.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "model/rope_table.h"
#include "ops/elementwise.h"
#include "ops/head_parts.h"
#include "ops/rope.h"

namespace jige::model {
namespace {

// Of the norms over latents, in all families.
constexpr double kLatentNormEps = 1e-6;

formats::ModelConfig with_latent_eps(formats::ModelConfig config) {
  config.norm_eps = kLatentNormEps;
  return config;
}

}  // namespace

LatentAttention::LatentAttention(const formats::ModelConfig& config,
                                 const LatentAttentionNames& names, int64_t layer,
                                 const std::optional<formats::LoraConfig>& lora, DeviceKind device,
                                 std::vector<ParamSpec>& params)
    : heads_(config.head_count),
      head_dim_(config.head_dim),
      turned_(config.rotary_dim),
      turns_(formats::turns(config, layer)),
      growth_begin_(growth_begin(config)),
      value_dim_(config.latent.value_dim),
      rank_(config.latent.rank),
      query_rank_(config.latent.query_rank),
      first_(query_rank_ > 0 ? query_rank_ : heads_ * head_dim_),
      score_scale_(score_scale(config, layer)) {
  std::optional<StoredRows> query_rows;
  std::optional<StoredRows> down_rows;
  if (config.turns_neighbours) {
    query_rows = StoredRows{.outer = heads_, .turns = turned_ / 2, .parts = {1, 1}, .ahead = own()};
    down_rows = StoredRows{.turns = turned_ / 2, .parts = {1, 1}, .ahead = rank_};
  }
  const formats::ModelConfig norm_config = with_latent_eps(config);
  ProjectionOptions down{
      .inputs = config.hidden_size, .bias = config.qkv_bias, .lora = lora, .device = device};
  if (has_query_latent()) {
    down.parts.push_back({names.query_down, query_rank_});
  } else {
    down.parts.push_back({names.query, first_, query_rows});
  }
  down.parts.push_back({names.down, rank_ + turned_, down_rows});
  down_ = Projection(std::move(down), params);
  if (has_query_latent()) {
    query_norm_ = NormLayer(norm_config, names.query_norm, query_rank_, false, params);
    query_up_ = Projection({.parts = {{names.query_up, heads_ * head_dim_, query_rows}},
                            .inputs = query_rank_,
                            .lora = lora,
                            .device = device},
                           params);
  }
  norm_ = NormLayer(norm_config, names.norm, rank_, false, params);
  const HeadRows by_head{.heads = heads_, .own = own(), .value = value_dim_};
  latent_heads_ = LatentHeads(by_head, rank_, turned_, params.size(), device);
  up_ = Projection({.parts = {{names.up, heads_ * (own() + value_dim_)}},
                    .inputs = rank_,
                    .by_head = by_head,
                    .lora = lora,
                    .device = device},
                   params);
}

std::vector<const Projection*> LatentAttention::projections() const {
  if (!has_query_latent()) return {&down_, &up_};
  return {&down_, &query_up_, &up_};
}

// In inference the up projection is there by head alone, in training as a whole: in one place.
void LatentAttention::plan_forward(Placement& at, DType compute, ops::WeightFormat format) {
  down_.plan_forward(at, compute, format);
  if (has_query_latent()) query_up_.plan_forward(at, compute, format);
  const int64_t begin = at.offset();
  latent_heads_.plan(at, compute, format);
  const int64_t end = at.offset();
  at.rewind(begin);
  up_.plan_forward(at, compute, format);
  at.rewind(std::max(end, at.offset()));
}

void LatentAttention::plan_backward(Placement& at, DType compute, ops::WeightFormat format) {
  down_.plan_backward(at, compute, format);
  if (has_query_latent()) query_up_.plan_backward(at, compute, format);
  up_.plan_backward(at, compute, format);
}

void LatentAttention::pack(Stream& stream, const BlockWeights& weights, DType compute,
                           PackFor use) const {
  down_.pack(stream, weights, compute, use);
  if (has_query_latent()) query_up_.pack(stream, weights, compute, use);
  if (use == PackFor::kInference) {
    latent_heads_.pack(stream, weights, compute);
  } else {
    up_.pack(stream, weights, compute, use);
  }
}

LatentAttention::Activations LatentAttention::place_views(Placement& at, int64_t token_count,
                                                          DType compute, bool saved) const {
  const int64_t t = token_count;
  Activations views;
  views.down = at.take(compute, Shape{t, first_ + rank_ + turned_});
  views.q =
      has_query_latent() ? at.take(compute, Shape{t, heads_ * head_dim_}) : query_of(views.down);
  views.parts = at.take(compute, Shape{t, heads_ * (own() + value_dim_)});
  views.u_down = down_.place_product(at, t, compute);
  views.u_up = up_.place_product(at, t, compute);
  if (has_query_latent()) views.u_query_up = query_up_.place_product(at, t, compute);
  if (!saved) return views;
  views.lse = at.take(DType::kF32, Shape{t, heads_});
  views.stats = norm_.place_stats(at, t);
  if (has_query_latent()) views.query_stats = query_norm_.place_stats(at, t);
  return views;
}

LatentAttention::Gradients LatentAttention::place_pending(Placement& at, int64_t token_count,
                                                          DType compute) const {
  const int64_t t = token_count;
  Gradients pending;
  pending.down = at.take(compute, Shape{t, first_ + rank_ + turned_});
  pending.parts = at.take(compute, Shape{t, heads_ * (own() + value_dim_)});
  pending.latent = at.take(compute, Shape{t, rank_});
  pending.v_down = down_.place_product(at, t, compute);
  pending.v_up = up_.place_product(at, t, compute);
  pending.q = query_of(pending.down);
  if (!has_query_latent()) return pending;
  pending.q = at.take(compute, Shape{t, heads_ * head_dim_});
  pending.query_latent = at.take(compute, Shape{t, query_rank_});
  pending.v_query_up = query_up_.place_product(at, t, compute);
  return pending;
}

LatentAttention::CachedWork LatentAttention::place_cached(Placement& at, int64_t token_count,
                                                          DType compute) const {
  const int64_t t = token_count;
  const int64_t width = rank_ + turned_;
  CachedWork work;
  work.down = at.take(compute, Shape{t, first_ + width});
  work.q = query_of(work.down);
  if (has_query_latent()) {
    work.q = at.take(compute, Shape{t, heads_ * head_dim_});
    work.query_latent = at.take(compute, Shape{t, query_rank_});
  }
  work.keys = at.take(compute, Shape{t, width});
  work.values = at.take(compute, Shape{t, width});
  work.queries = at.take(compute, Shape{t, heads_ * width});
  work.attended = at.take(compute, Shape{t, heads_ * width});
  return work;
}

LatentAttention::Work LatentAttention::place_work(Placement& at, int64_t token_count, DType compute,
                                                  PackFor use) const {
  const Shape latents{token_count, rank_};
  const Shape heads{token_count, heads_ * head_dim_};
  Work work;
  work.latent = at.take(compute, latents);
  if (has_query_latent()) work.query_latent = at.take(compute, Shape{token_count, query_rank_});
  work.keys = at.take(compute, heads);
  work.values = at.take(compute, heads);
  if (narrow()) work.attended = at.take(compute, heads);
  if (use == PackFor::kInference) return work;
  if (narrow()) work.grad_attended = at.take(compute, heads);
  work.grad_keys = at.take(compute, heads);
  work.grad_values = at.take(compute, heads);
  return work;
}

LatentAttention::BackwardViews LatentAttention::place_backward(const AttentionMemory& memory,
                                                               int64_t token_count,
                                                               DType compute) const {
  Placement saved(memory.saved);
  Placement pending(memory.pending);
  Placement workspace(memory.workspace);
  return {.saved = place_views(saved, token_count, compute, true),
          .pending = place_pending(pending, token_count, compute),
          .work = place_work(workspace, token_count, compute, PackFor::kTraining)};
}

int64_t LatentAttention::saved_bytes(int64_t token_count, DType compute) const {
  Placement at;
  place_views(at, token_count, compute, true);
  return at.peak_bytes();
}

int64_t LatentAttention::pending_bytes(int64_t token_count, DType compute) const {
  Placement at;
  place_pending(at, token_count, compute);
  return at.peak_bytes();
}

int64_t LatentAttention::workspace_bytes(int64_t token_count, DType compute, PackFor use) const {
  Placement at;
  if (use == PackFor::kInference) {
    place_cached(at, token_count, compute);
    at.rewind(0);
    place_views(at, token_count, compute, false);
  }
  place_work(at, token_count, compute, use);
  return at.peak_bytes();
}

int64_t LatentAttention::thread_scratch_bytes(int64_t token_count) const {
  return ops::attention_scratch_bytes(shape(), token_count);
}

double LatentAttention::forward_flops(double token_count, double context_mean) const {
  return 2.0 * token_count * context_mean * static_cast<double>(heads_ * (head_dim_ + value_dim_));
}

ops::AttentionShape LatentAttention::shape() const {
  return {
      .head_count = heads_, .kv_head_count = heads_, .head_dim = head_dim_, .scale = score_scale_};
}

void LatentAttention::rotate(Stream& stream, const BlockWeights& weights, const Batch& batch,
                             const TensorView& q, const TensorView& shared, bool inverse) const {
  if (!turns_) return;
  ops::Rope args{.positions = batch.positions,
                 .cos_sin = weights.rope_table.column_range(0, turned_),
                 .rotary_dim = turned_,
                 .inverse = inverse};
  args.data = shared;
  args.head_dim = turned_;
  ops::rope(stream, args);
  args.data = q;
  args.head_dim = head_dim_;
  args.first = own();
  ops::rope(stream, args);
  if (growth_begin_ < 0) return;
  args.first = 0;
  args.rotary_dim = head_dim_;
  args.cos_sin = weights.rope_table.column_range(growth_begin_, growth_begin_ + head_dim_);
  ops::rope(stream, args);
}

void LatentAttention::join(Stream& stream, const Activations& views, const Work& work) const {
  ops::join_heads(stream, {.keys = work.keys,
                           .values = work.values,
                           .parts = views.parts,
                           .shared = shared_of(views.down),
                           .head_count = heads_,
                           .value_columns = value_dim_});
}

void LatentAttention::run_forward(const BlockContext& context, const BlockWeights& weights,
                                  const AttentionMemory& memory, const Projection& projection,
                                  const TensorView& dst, const TensorView& src,
                                  const TensorView& product) const {
  projection.forward(context.stream, weights, context.compute,
                     {.dst = dst,
                      .src = src,
                      .product = product,
                      .scratch = memory.adapter_scratch,
                      .dropout = memory.dropout,
                      .adapters = context.adapters});
}

void LatentAttention::forward(const BlockContext& context, const BlockWeights& weights,
                              const Batch& batch, const TensorView& src, const TensorView& dst,
                              const AttentionMemory& memory) const {
  if (context.kv_cache.data) {
    forward_cached(context, weights, batch, src, dst, memory);
  } else {
    forward_flat(context, weights, batch, src, dst, memory);
  }
}

void LatentAttention::forward_flat(const BlockContext& context, const BlockWeights& weights,
                                   const Batch& batch, const TensorView& src, const TensorView& dst,
                                   const AttentionMemory& memory) const {
  Stream& stream = context.stream;
  const int64_t t = batch.token_count();
  const bool saves = bool(memory.saved);
  Placement kept(memory.saved);
  Placement workspace(memory.workspace);
  const Activations views = place_views(saves ? kept : workspace, t, context.compute, saves);
  const Work work =
      place_work(workspace, t, context.compute, saves ? PackFor::kTraining : PackFor::kInference);
  run_forward(context, weights, memory, down_, views.down, src, views.u_down);
  if (has_query_latent()) {
    query_norm_.forward(stream, weights, work.query_latent, query_of(views.down),
                        views.query_stats);
    run_forward(context, weights, memory, query_up_, views.q, work.query_latent, views.u_query_up);
  }
  norm_.forward(stream, weights, work.latent, latent_of(views.down), views.stats);
  run_forward(context, weights, memory, up_, views.parts, work.latent, views.u_up);
  rotate(stream, weights, batch, views.q, shared_of(views.down), false);
  join(stream, views, work);
  const TensorView& attended = narrow() ? work.attended : dst;
  ops::attention_forward(stream, {.dst = attended,
                                  .q = views.q,
                                  .k = work.keys,
                                  .v = work.values,
                                  .lse = views.lse,
                                  .sequences = batch.sequences,
                                  .shape = shape()});
  if (narrow()) ops::fit_heads(stream, {.dst = dst, .src = attended, .head_count = heads_});
}

void LatentAttention::forward_cached(const BlockContext& context, const BlockWeights& weights,
                                     const Batch& batch, const TensorView& src,
                                     const TensorView& dst, const AttentionMemory& memory) const {
  JIGE_CHECK(!up_.adapted(), "a cache of latents beside the model's own adapters");
  Stream& stream = context.stream;
  Placement workspace(memory.workspace);
  const CachedWork work = place_cached(workspace, batch.token_count(), context.compute);
  run_forward(context, weights, memory, down_, work.down, src, {});
  if (has_query_latent()) {
    query_norm_.forward(stream, weights, work.query_latent, query_of(work.down), {});
    run_forward(context, weights, memory, query_up_, work.q, work.query_latent, {});
  }
  rotate(stream, weights, batch, work.q, shared_of(work.down), false);
  const TensorView latent = work.keys.column_range(0, rank_);
  norm_.forward(stream, weights, latent, latent_of(work.down), {});
  ops::scale(stream, work.keys.column_range(rank_, rank_ + turned_), shared_of(work.down), 1.0f);
  ops::fit_heads(stream, {.dst = work.values, .src = latent, .head_count = 1});
  latent_heads_.queries(context, weights, up_, work.queries, work.q);
  ops::kv_append(stream, context.kv_cache, work.keys, work.values, batch.sequences);
  ops::attention_cached(stream, {.dst = work.attended,
                                 .q = work.queries,
                                 .cache = context.kv_cache,
                                 .sequences = batch.sequences,
                                 .shape = {.head_count = heads_,
                                           .kv_head_count = 1,
                                           .head_dim = rank_ + turned_,
                                           .scale = score_scale_},
                                 .tables = batch.tables,
                                 .latent_columns = rank_});
  latent_heads_.values(context, weights, up_, dst, work.attended);
}

void LatentAttention::backward_input(const BlockContext& context, const BlockWeights& weights,
                                     const Batch& batch, const TensorView& dst,
                                     const TensorView& grad_dst, const TensorView& grad_src,
                                     const AttentionMemory& memory) const {
  const DType compute = context.compute;
  Stream& stream = context.stream;
  const auto [saved, pending, work] = place_backward(memory, batch.token_count(), compute);
  const auto run = [&](const Projection& projection, const TensorView& to, const TensorView& from,
                       const TensorView& product) {
    projection.backward_input(stream, weights, compute,
                              {.grad_src = to,
                               .grad_dst = from,
                               .product = product,
                               .scratch = memory.adapter_scratch,
                               .dropout = memory.dropout});
  };
  join(stream, saved, work);
  if (narrow()) {
    ops::fit_heads(stream, {.dst = work.attended, .src = dst, .head_count = heads_});
    ops::fit_heads(stream, {.dst = work.grad_attended, .src = grad_dst, .head_count = heads_});
  }
  ops::attention_backward(stream, {.grad_q = pending.q,
                                   .grad_k = work.grad_keys,
                                   .grad_v = work.grad_values,
                                   .grad_dst = narrow() ? work.grad_attended : grad_dst,
                                   .q = saved.q,
                                   .k = work.keys,
                                   .v = work.values,
                                   .dst = narrow() ? work.attended : dst,
                                   .lse = saved.lse,
                                   .sequences = batch.sequences,
                                   .shape = shape()});
  ops::join_heads_backward(stream, {.keys = work.grad_keys,
                                    .values = work.grad_values,
                                    .parts = pending.parts,
                                    .shared = shared_of(pending.down),
                                    .head_count = heads_,
                                    .value_columns = value_dim_});
  rotate(stream, weights, batch, pending.q, shared_of(pending.down), true);
  run(up_, pending.latent, pending.parts, pending.v_up);
  norm_.backward_input(stream, weights, latent_of(pending.down), pending.latent,
                       latent_of(saved.down), saved.stats, false);
  if (has_query_latent()) {
    run(query_up_, pending.query_latent, pending.q, pending.v_query_up);
    query_norm_.backward_input(stream, weights, query_of(pending.down), pending.query_latent,
                               query_of(saved.down), saved.query_stats, false);
  }
  run(down_, grad_src, pending.down, pending.v_down);
}

void LatentAttention::backward_weight(const BlockContext& context, const BlockWeights& weights,
                                      const Batch& batch, const TensorView& src,
                                      const AttentionMemory& memory) const {
  const DType compute = context.compute;
  Stream& stream = context.stream;
  const auto [saved, pending, work] = place_backward(memory, batch.token_count(), compute);
  const auto run = [&](const Projection& projection, const TensorView& grad_dst,
                       const TensorView& from, const TensorView& u, const TensorView& v) {
    projection.backward_weight(stream, weights, compute,
                               {.grad_dst = grad_dst,
                                .src = from,
                                .product_forward = u,
                                .product_backward = v,
                                .scratch = memory.weight_scratch,
                                .dropout = memory.dropout,
                                .gradients = context.gradients});
  };
  if (up_.wants_gradient(weights)) {
    norm_.forward(stream, weights, work.latent, latent_of(saved.down), {});
    run(up_, pending.parts, work.latent, saved.u_up, pending.v_up);
  }
  norm_.backward_weight(stream, weights, pending.latent, latent_of(saved.down), saved.stats);
  if (has_query_latent()) {
    if (query_up_.wants_gradient(weights)) {
      query_norm_.forward(stream, weights, work.query_latent, query_of(saved.down), {});
      run(query_up_, pending.q, work.query_latent, saved.u_query_up, pending.v_query_up);
    }
    query_norm_.backward_weight(stream, weights, pending.query_latent, query_of(saved.down),
                                saved.query_stats);
  }
  if (wants_source(weights)) run(down_, pending.down, src, saved.u_down, pending.v_down);
}

}  // namespace jige::model
