#include "model/grouped_attention.h"

#include <algorithm>

#include "model/given_row.h"
#include "model/rope_table.h"
#include "ops/elementwise.h"
#include "ops/gate.h"
#include "ops/rope.h"

namespace jige::model {

namespace {

// Where files have the columns of a head whose halves are apart.
StoredRows halves_apart(int64_t heads, int64_t head_dim) {
  return {.outer = heads, .turns = 2, .parts = {head_dim / 4, head_dim / 4}};
}

}  // namespace

std::vector<ProjectionOptions::Part> GroupedAttention::qkv_parts(
    const formats::ModelConfig& config, const GroupedAttentionNames& all,
    const GroupedAttentionOptions& options) const {
  const std::vector<std::string>& names = all.qkv;
  std::vector<int64_t> outputs = {k_begin()};
  if (!shares_) outputs.push_back(kv_columns());
  if (!shares_ && !keys_are_values_) outputs.push_back(kv_columns());
  auto parts = fused_parts(names, outputs);
  if (gated_) parts[0].stored_rows = StoredRows{.turns = heads_, .parts = {head_dim_, head_dim_}};
  if (config.qkv_by_head) {
    const int64_t queries = heads_ / kv_heads_ * head_dim_;
    parts[0].stored_rows = StoredRows{.turns = kv_heads_, .parts = {queries, head_dim_, head_dim_}};
  }
  if (config.turns_neighbours) {
    const int64_t turned = turned_columns(config).full;
    StoredRows order{
        .outer = heads_, .turns = turned / 2, .parts = {1, 1}, .kept = head_dim_ - turned};
    parts[0].stored_rows = order;
    order.outer = kv_heads_;
    parts[1].stored_rows = order;
  }
  if (options.halves_apart) {
    parts[0].stored_rows = halves_apart(heads_, head_dim_);
    parts[1].stored_rows = halves_apart(kv_heads_, head_dim_);
  }
  if (head_gates_) parts.push_back({.name = all.head_gates, .outputs = heads_, .plain = true});
  return parts;
}

GroupedAttention::GroupedAttention(const formats::ModelConfig& config,
                                   const GroupedAttentionNames& names,
                                   const GroupedAttentionOptions& options,
                                   std::vector<ParamSpec>& params)
    : heads_(config.head_count),
      kv_heads_(formats::head_shape(config, options.layer).kv_head_count),
      head_dim_(formats::head_shape(config, options.layer).head_dim),
      score_scale_(score_scale(config, options.layer)),
      score_cap_(config.score_cap),
      head_norms_(config.qk_norm || config.qk_norm_whole || config.qk_norm_apart ||
                  (config.qk_norm_plain && formats::turns(config, options.layer))),
      gated_(config.attention_gate),
      head_gates_(config.head_gates),
      keys_are_values_(formats::keys_are_values(config, options.layer)),
      value_norm_(config.value_norm),
      shares_(formats::shares_keys(config, options.layer)),
      gives_(formats::gives_keys(config, options.layer)),
      looks_ahead_(config.looks_ahead),
      mutual_(rows_see_one_another(config, options.layer)) {
  place(config, options.layer);
  qkv_ = Projection({.parts = qkv_parts(config, names, options),
                     .inputs = config.hidden_size,
                     .bias = config.qkv_bias,
                     .transposed = options.transposed,
                     .input_scale = config.attention_in_scale,
                     .scales = {{k_begin(), 1.0}, {shares_ ? 0 : kv_columns(), config.key_scale}},
                     .bounded = options.bounded,
                     .lora = options.lora,
                     .device = options.device},
                    params);
  if (head_norms_) {
    const bool stacked = names.head_norms_stacked;
    const auto make = [&](const std::string& name, int64_t heads) {
      const std::string& own = config.qk_norm_plain ? std::string() : name;
      HeadNormLayer norm(config, own, heads, head_dim_, stacked, params);
      if (options.halves_apart) params.back().stored_rows = halves_apart(1, head_dim_);
      return norm;
    };
    q_norm_ = make(names.q_norm, heads_);
    if (!shares_) k_norm_ = make(names.k_norm, kv_heads_);
  }
  if (norms_values()) v_norm_ = NormLayer(config, "", head_dim_, false, params);
  if (config.attention_sinks) {
    sinks_ = params.size();
    params.push_back({.name = names.sinks, .shape = Shape{heads_}});
  }
  add_distances(config, names, options, params);
}

void GroupedAttention::place(const formats::ModelConfig& config, int64_t layer) {
  const bool sliding = formats::has_window(config, layer);
  if (sliding) window_ = config.sliding_window;
  const bool turns = formats::turns(config, layer);
  turns_first_ = config.qk_norm_turned && turns;
  const TurnedColumns turned = turned_columns(config);
  if (turns) {
    turned_ = sliding ? turned.sliding : turned.full;
    chunk_ = config.attention_chunk;
  } else if (growth_begin(config) >= 0) {
    queries_grow_ = true;
    turned_ = head_dim_;
  }
  const bool second = config.sliding_rope || turned.full != turned.sliding;
  if (second && sliding) rope_begin_ = turned.full;
  query_rope_begin_ = config.rope.query_growth > 0 ? turned.full : rope_begin_;
  if (queries_grow_) query_rope_begin_ = growth_begin(config);
}

void GroupedAttention::plan_forward(Placement& at, DType compute, ops::WeightFormat format) {
  qkv_.plan_forward(at, compute, format);
  if (rows_ && rows_->projection) rows_->projection->plan_forward(at, compute, format);
}

void GroupedAttention::plan_backward(Placement& at, DType compute, ops::WeightFormat format) {
  qkv_.plan_backward(at, compute, format);
  if (rows_ && rows_->projection) rows_->projection->plan_backward(at, compute, format);
}

GroupedAttention::Activations GroupedAttention::place_saved(Placement& at, int64_t token_count,
                                                            DType compute) const {
  Activations saved;
  saved.qkv = at.take(compute, Shape{token_count, product_columns()});
  saved.lse = at.take(DType::kF32, Shape{token_count, heads_});
  if (any_gates()) saved.attended = at.take(compute, Shape{token_count, q_columns()});
  if (head_norms_) {
    saved.stats_q = q_norm_.place_stats(at, token_count);
    if (!shares_) saved.stats_k = k_norm_.place_stats(at, token_count);
  }
  if (norms_values()) saved.stats_v = v_norm_.place_stats(at, token_count, kv_heads_);
  saved.u = qkv_.place_product(at, token_count, compute);
  return saved;
}

GroupedAttention::Activations GroupedAttention::place_unsaved(Placement& at, int64_t token_count,
                                                              DType compute) const {
  Activations views;
  const int64_t rest = shares_ ? k_begin() : qkv_columns();
  views.qkv = at.take(compute, Shape{token_count, rest + gate_columns()});
  views.u = qkv_.place_product(at, token_count, compute);
  place_distances(at, token_count, compute, views);
  return views;
}

GroupedAttention::Gradients GroupedAttention::place_pending(Placement& at, int64_t token_count,
                                                            DType compute) const {
  Gradients pending;
  pending.qkv = at.take(compute, Shape{token_count, product_columns()});
  if (head_norms_) pending.heads = at.take(compute, Shape{token_count, heads_columns()});
  if (sinks_) pending.sinks = at.take(DType::kF32, Shape{token_count, heads_});
  pending.v = qkv_.place_product(at, token_count, compute);
  return pending;
}

TensorView GroupedAttention::place_heads(Placement& at, int64_t token_count, DType compute) const {
  return head_norms_ ? at.take(compute, Shape{token_count, heads_columns()}) : TensorView{};
}

TensorView GroupedAttention::place_attended(Placement& at, int64_t token_count,
                                            DType compute) const {
  return any_gates() ? at.take(compute, Shape{token_count, q_columns()}) : TensorView{};
}

TensorView GroupedAttention::place_shared(Placement& at, int64_t token_count, DType compute) const {
  return shares_ ? at.take(compute, Shape{token_count, 2 * kv_columns()}) : TensorView{};
}

int64_t GroupedAttention::saved_bytes(int64_t token_count, DType compute) const {
  Placement at;
  place_saved(at, token_count, compute);
  return at.peak_bytes();
}

int64_t GroupedAttention::pending_bytes(int64_t token_count, DType compute) const {
  Placement at;
  place_pending(at, token_count, compute);
  return at.peak_bytes();
}

int64_t GroupedAttention::workspace_bytes(int64_t token_count, DType compute, PackFor use) const {
  Placement at;
  if (use == PackFor::kInference) {
    place_unsaved(at, token_count, compute);
    place_shared(at, token_count, compute);
    place_head_gates(at, token_count);
  } else {
    place_heads(at, token_count, compute);
    place_attended(at, token_count, compute);
    place_head_gate_memory(at, token_count, compute);
    place_shared(at, token_count, compute);
    place_shared(at, token_count, compute);  // and their gradients
  }
  return at.peak_bytes();
}

int64_t GroupedAttention::thread_scratch_bytes(int64_t token_count) const {
  const int64_t distances = rows_ ? ops::attention_distance_scratch_bytes(shape()) : 0;
  return ops::attention_scratch_bytes(shape(), token_count) + distances;
}

double GroupedAttention::forward_flops(double token_count, double context_mean) const {
  const int64_t seen = window_ > 0 ? window_ : chunk_;
  const double sides = looks_ahead_ ? 2.0 : 1.0;
  const double window = seen > 0 ? static_cast<double>(seen) : context_mean;
  return 2.0 * (1.0 + score_products()) * token_count * sides * std::min(context_mean, window) *
         static_cast<double>(q_columns());
}

ops::AttentionShape GroupedAttention::shape() const {
  return {.head_count = heads_,
          .kv_head_count = kv_heads_,
          .head_dim = head_dim_,
          .scale = score_scale_,
          .window = window_,
          .cap = score_cap_,
          .both_sides = looks_ahead_};
}

ops::AttentionShape GroupedAttention::shape(const BlockWeights& weights) const {
  ops::AttentionShape with_sinks = shape();
  if (sinks_) with_sinks.sinks = weights.params[*sinks_].value.as<float>();
  return with_sinks;
}

void GroupedAttention::forward(const BlockContext& context, const BlockWeights& weights,
                               const Batch& batch, const TensorView& src, const TensorView& dst,
                               const AttentionMemory& memory) const {
  const int64_t t = batch.token_count();
  const DType compute = context.compute;
  Stream& stream = context.stream;
  const bool saves = bool(memory.saved);
  Placement kept(saves ? memory.saved : memory.workspace);
  Placement workspace(memory.workspace);
  const Activations views = saves ? place_saved(kept, t, compute) : place_unsaved(kept, t, compute);
  TensorView heads = saves ? place_heads(workspace, t, compute) : TensorView{};
  if (!heads) heads = views.qkv.column_range(0, heads_columns());
  const TensorView head_gates = place_head_gates(saves ? workspace : kept, t);

  qkv_.forward(stream, weights, compute,
               {.dst = views.qkv.column_range(0, product_columns()),
                .src = src,
                .product = views.u,
                .scratch = memory.adapter_scratch,
                .dropout = memory.dropout,
                .adapters = context.adapters,
                .norm = memory.norm});
  if (turns_first_) rotate(stream, weights, batch, views.qkv, false);
  normalise_heads(stream, weights, heads, views.qkv, views);
  const TensorView attended = views.attended ? views.attended : dst;
  const bool cached = context.kv_cache.data != nullptr;
  const bool done =
      cached && !turns_first_ &&
      attend_at_once(context, weights, batch, attended, heads_of(stream, heads, views.qkv, {}, {}));
  if (!turns_first_ && !done) rotate(stream, weights, batch, heads, false);
  if (cached && !done) {
    attend_cached(context, weights, batch, attended, heads_of(stream, heads, views.qkv, {}, {}));
  } else if (!cached) {
    const TensorView narrow = place_shared(saves ? workspace : kept, t, compute);
    const Heads all = heads_of(stream, heads, views.qkv, memory.shared, narrow);
    if (gives_) {
      ops::scale(stream, shared_keys(memory.shared), all.k, 1.0f);
      ops::scale(stream, shared_values(memory.shared), all.v, 1.0f);
    }
    attend(context, weights, batch, attended, all, views);
  }
  if (gated_) {
    ops::gate_forward(stream, dst, attended, gates_of(views.qkv), ops::GateKind::kSigmoid);
  }
  if (head_gates_) gate_heads(stream, dst, attended, views.qkv, head_gates);
}

GroupedAttention::Heads GroupedAttention::heads_of(Stream& stream, const TensorView& heads,
                                                   const TensorView& product,
                                                   const TensorView& shared,
                                                   const TensorView& narrow) const {
  if (!shares_) {
    return {
        .q = queries_of(heads), .k = keys_of(heads), .v = values_of(value_norm_ ? heads : product)};
  }
  if (!narrow) return {.q = queries_of(heads), .k = {}, .v = {}};
  ops::scale(stream, narrow, shared, 1.0f);
  return {.q = queries_of(heads), .k = shared_keys(narrow), .v = shared_values(narrow)};
}

void GroupedAttention::attend(const BlockContext& context, const BlockWeights& weights,
                              const Batch& batch, const TensorView& dst, const Heads& heads,
                              const Activations& views) const {
  if (context.exchange) return attend_pieces(context, weights, dst, heads, views);
  ops::AttentionShape own = shape(weights);
  set_distances(context.stream, weights, batch, context.compute, views, own);
  ops::AttentionForward attention{.dst = dst,
                                  .q = heads.q,
                                  .k = heads.k,
                                  .v = heads.v,
                                  .lse = views.lse,
                                  .sequences = seen(batch),
                                  .shape = own};
  for (const ops::SequenceSpan& span : mutual_spans(batch)) {
    attention.key_begins.push_back(span.row_begin - span.context_count);
  }
  ops::attention_forward(context.stream, attention);
}

bool GroupedAttention::attend_at_once(const BlockContext& context, const BlockWeights& weights,
                                      const Batch& batch, const TensorView& dst,
                                      const Heads& heads) const {
  if (chunk_ > 0 || queries_grow_ || batch.angles) return false;
  const auto angles = [&](int64_t begin) {
    return turned_ > 0 ? weights.rope_table.column_range(begin, begin + turned_) : TensorView{};
  };
  return ops::attention_step(context.stream, {.attention = {.dst = dst,
                                                            .q = heads.q,
                                                            .cache = context.kv_cache,
                                                            .sequences = batch.sequences,
                                                            .shape = shape(weights),
                                                            .tables = batch.tables},
                                              .k = heads.k,
                                              .v = heads.v,
                                              .q_cos_sin = angles(query_rope_begin_),
                                              .k_cos_sin = angles(rope_begin_),
                                              .rotary_dim = turned_});
}

void GroupedAttention::attend_cached(const BlockContext& context, const BlockWeights& weights,
                                     const Batch& batch, const TensorView& dst,
                                     const Heads& heads) const {
  if (!shares_) {  // else they stand there
    ops::kv_append(context.stream, context.kv_cache, heads.k, heads.v, batch.sequences);
  }
  ops::attention_cached(context.stream, {.dst = dst,
                                         .q = heads.q,
                                         .cache = context.kv_cache,
                                         .sequences = seen(batch),
                                         .shape = shape(weights),
                                         .tables = chunk_ > 0 ? nullptr : batch.tables});
}

void GroupedAttention::normalise_heads(Stream& stream, const BlockWeights& weights,
                                       const TensorView& heads, const TensorView& qkv,
                                       const Activations& stats) const {
  if (!head_norms_) return;
  // Values first: they may be keys, whose norm may be in place.
  if (norms_values()) {
    v_norm_.forward(stream, weights, values_of(heads), plain_values_of(qkv), stats.stats_v);
  }
  q_norm_.forward(stream, weights, queries_of(heads), queries_of(qkv), stats.stats_q);
  if (shares_) return;
  k_norm_.forward(stream, weights, keys_of(heads), keys_of(qkv), stats.stats_k);
}

void GroupedAttention::backward_norms(Stream& stream, const BlockWeights& weights,
                                      const Activations& saved, const Gradients& pending) const {
  if (!head_norms_) return;
  q_norm_.backward_input(stream, weights, queries_of(pending.qkv), queries_of(pending.heads),
                         queries_of(saved.qkv), saved.stats_q);
  if (shares_) return;
  k_norm_.backward_input(stream, weights, keys_of(pending.qkv), keys_of(pending.heads),
                         keys_of(saved.qkv), saved.stats_k);
  if (!value_norm_) return;
  v_norm_.backward_input(stream, weights, plain_values_of(pending.qkv), values_of(pending.heads),
                         plain_values_of(saved.qkv), saved.stats_v, keys_are_values_);
}

void GroupedAttention::rotate(Stream& stream, const BlockWeights& weights, const Batch& batch,
                              const TensorView& heads, bool inverse) const {
  if (turned_ == 0) return;
  const TensorView& table = batch.angles ? batch.angles : weights.rope_table;
  const auto turn = [&](const TensorView& data, int64_t begin) {
    ops::rope(stream, {.data = data,
                       .positions = batch.positions,
                       .cos_sin = table.column_range(begin, begin + turned_),
                       .head_dim = head_dim_,
                       .rotary_dim = turned_,
                       .inverse = inverse});
  };
  if (shares_ || queries_grow_) return turn(queries_of(heads), query_rope_begin_);
  if (query_rope_begin_ == rope_begin_ && !gated_) {
    return turn(heads.column_range(0, qk_columns()), rope_begin_);
  }
  turn(queries_of(heads), query_rope_begin_);
  turn(keys_of(heads), rope_begin_);
}

// Of the gates, and of what attention gave.
TensorView GroupedAttention::backward_gates(Stream& stream, const Activations& saved,
                                            const Gradients& pending, const TensorView& grad_dst,
                                            const TensorView& grad_attended) const {
  if (!gated_) return grad_dst;
  ops::gate_backward(stream, grad_attended, gates_of(pending.qkv), grad_dst, saved.attended,
                     gates_of(saved.qkv), ops::GateKind::kSigmoid);
  return grad_attended;
}

void GroupedAttention::backward_input(const BlockContext& context, const BlockWeights& weights,
                                      const Batch& batch, const TensorView& dst,
                                      const TensorView& grad_dst, const TensorView& grad_src,
                                      const AttentionMemory& memory) const {
  const int64_t t = batch.token_count();
  const DType compute = context.compute;
  Stream& stream = context.stream;
  Placement kept(memory.saved);
  Placement left(memory.pending);
  Placement workspace(memory.workspace);
  const Activations saved = place_saved(kept, t, compute);
  const Gradients pending = place_pending(left, t, compute);
  TensorView heads = place_heads(workspace, t, compute);
  const TensorView attended = any_gates() ? saved.attended : dst;
  TensorView grad_attended = place_attended(workspace, t, compute);
  const HeadGateMemory gates = place_head_gate_memory(workspace, t, compute);
  grad_attended = head_gates_
                      ? backward_head_gates(stream, saved, pending, grad_dst, grad_attended, gates)
                      : backward_gates(stream, saved, pending, grad_dst, grad_attended);
  if (head_norms_) {  // saved.qkv holds q|k as they were before the norms, turned or not
    normalise_heads(stream, weights, heads, saved.qkv, {});
    if (!turns_first_) rotate(stream, weights, batch, heads, false);
  } else {
    heads = saved.qkv.column_range(0, heads_columns());
  }
  const TensorView grad_heads =
      head_norms_ ? pending.heads : pending.qkv.column_range(0, heads_columns());
  const TensorView narrow = place_shared(workspace, t, compute);
  const Heads all = heads_of(stream, heads, saved.qkv, memory.shared, narrow);
  const TensorView grad_narrow = place_shared(workspace, t, compute);
  const Heads grads = shares_ ? Heads{.q = queries_of(grad_heads),
                                      .k = shared_keys(grad_narrow),
                                      .v = shared_values(grad_narrow)}
                              : heads_of(stream, grad_heads, pending.qkv, {}, {});
  backward_attend(
      context, weights, batch,
      {.heads = all, .grads = grads, .dst = attended, .grad_dst = grad_attended, .lse = saved.lse});
  if (shares_) ops::add(stream, memory.grad_shared, memory.grad_shared, grad_narrow);
  if (gives_) {
    ops::add(stream, grads.k, grads.k, shared_keys(memory.grad_shared));
    ops::add(stream, grads.v, grads.v, shared_values(memory.grad_shared));
  }
  if (sinks_) {
    ops::attention_sink_slopes(stream, {.slopes = pending.sinks,
                                        .grad_dst = grad_attended,
                                        .dst = attended,
                                        .lse = saved.lse,
                                        .shape = shape(weights)});
  }
  if (!turns_first_) rotate(stream, weights, batch, grad_heads, true);
  backward_norms(stream, weights, saved, pending);
  if (turns_first_) rotate(stream, weights, batch, pending.qkv, true);
  qkv_.backward_input(stream, weights, compute,
                      {.grad_src = grad_src,
                       .grad_dst = pending.qkv,
                       .product = pending.v,
                       .scratch = memory.adapter_scratch,
                       .dropout = memory.dropout});
}

void GroupedAttention::backward_weight(const BlockContext& context, const BlockWeights& weights,
                                       const Batch& batch, const TensorView& src,
                                       const AttentionMemory& memory) const {
  Stream& stream = context.stream;
  const int64_t t = batch.token_count();
  const DType compute = context.compute;
  Placement kept(memory.saved, context.weight_cut(t));
  Placement left(memory.pending, context.weight_cut(t));
  const Activations saved = place_saved(kept, t, compute);
  const Gradients pending = place_pending(left, t, compute);
  if (sinks_ && weights.params[*sinks_].grad) {
    ops::bias_backward(stream, weights.params[*sinks_].grad, pending.sinks);
  }
  if (head_norms_) {
    q_norm_.backward_weight(stream, weights, queries_of(pending.heads), queries_of(saved.qkv),
                            saved.stats_q);
    if (!shares_) {
      k_norm_.backward_weight(stream, weights, keys_of(pending.heads), keys_of(saved.qkv),
                              saved.stats_k);
    }
  }
  if (!wants_source(weights)) return;
  qkv_.backward_weight(stream, weights, compute,
                       {.grad_dst = pending.qkv,
                        .src = src,
                        .product_forward = saved.u,
                        .product_backward = pending.v,
                        .scratch = memory.weight_scratch,
                        .dropout = memory.dropout,
                        .gradients = context.gradients});
}

}  // namespace jige::model
