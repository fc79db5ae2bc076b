#include "model/delta_attention.h"

#include "ops/elementwise.h"
#include "ops/gate.h"
#include "ops/linear.h"

namespace jige::model {
namespace {

// Its norm is the weight itself, whatever the family's others are, and may have an epsilon of its
// own.
formats::ModelConfig with_own_norms(formats::ModelConfig config) {
  config.norm_adds_one = false;
  if (config.delta.norm_eps > 0) config.norm_eps = config.delta.norm_eps;
  return config;
}

}  // namespace

DeltaAttention::DeltaAttention(const formats::ModelConfig& config, const DeltaAttentionNames& names,
                               const std::optional<formats::LoraConfig>& lora, DeviceKind device,
                               std::vector<ParamSpec>& params)
    : shape_{.key_heads = config.delta.key_heads,
             .value_heads = config.delta.value_heads,
             .key_dim = config.delta.key_dim,
             .value_dim = config.delta.value_dim},
      rate_scale_(config.delta.doubles_rate ? 2.0f : 1.0f) {
  in_ = Projection(
      {.parts = in_parts(names), .inputs = config.hidden_size, .lora = lora, .device = device},
      params);
  ConvLayerOptions conv{
      .parts = {}, .whole = names.conv_whole, .kernel = config.delta.kernel, .silu = true};
  for (const ProjectionOptions::Part& part : qkv_parts(names.conv)) {
    conv.parts.push_back({part.name, part.outputs});
  }
  conv_ = ConvLayer(conv, params);
  log_scale_ = params.size();
  params.push_back({.name = names.log_scale,
                    .shape = Shape{shape_.value_heads},
                    .init = InitKind::kLogUniform,
                    .init_std = 16.0});
  decay_bias_ = params.size();
  params.push_back({.name = names.decay_bias,
                    .shape = Shape{shape_.value_heads},
                    .init = config.delta.draws_steps ? InitKind::kStep : InitKind::kOne,
                    .init_std = 0.1});
  norm_ = NormLayer(with_own_norms(config), names.norm, shape_.value_dim, false, params);
}

std::vector<ProjectionOptions::Part> DeltaAttention::qkv_parts(
    const std::vector<std::string>& names) const {
  return fused_parts(names, {key_columns(), key_columns(), value_columns()});
}

std::vector<ProjectionOptions::Part> DeltaAttention::in_parts(
    const DeltaAttentionNames& names) const {
  const int64_t heads = shape_.value_heads;
  if (!names.gate.empty()) {
    std::vector<ProjectionOptions::Part> parts = qkv_parts(names.qkv);
    parts.insert(parts.end(),
                 {{names.gate, value_columns()}, {names.rate, heads}, {names.decay, heads}});
    return parts;
  }
  const int64_t of_key = heads / shape_.key_heads;
  const int64_t values = of_key * shape_.value_dim;
  const StoredRows qkvz{.turns = shape_.key_heads,
                        .parts = {shape_.key_dim, shape_.key_dim, values, values}};
  const StoredRows ba{.turns = shape_.key_heads, .parts = {of_key, of_key}};
  return {{names.qkv[0], conv_columns() + value_columns(), qkvz}, {names.rate, 2 * heads, ba}};
}

DeltaAttention::Activations DeltaAttention::place_activations(Placement& at, int64_t token_count,
                                                              DType compute, bool saved) const {
  Activations views;
  views.in = at.take(compute, Shape{token_count, in_columns()});
  views.o = at.take(compute, Shape{token_count, value_columns()});
  views.u = in_.place_product(at, token_count, compute);
  if (saved) views.stats = norm_.place_stats(at, token_count, shape_.value_heads);
  return views;
}

DeltaAttention::Gradients DeltaAttention::place_pending(Placement& at, int64_t token_count,
                                                        DType compute) const {
  const Shape heads{token_count, shape_.value_heads};
  Gradients pending;
  pending.in = at.take(compute, Shape{token_count, in_columns()});
  pending.conv = at.take(compute, Shape{token_count, conv_columns()});
  pending.normed = at.take(compute, Shape{token_count, value_columns()});
  pending.slopes_scale = at.take(DType::kF32, heads);
  pending.slopes_bias = at.take(DType::kF32, heads);
  pending.v = in_.place_product(at, token_count, compute);
  return pending;
}

DeltaAttention::Work DeltaAttention::place_work(Placement& at, int64_t token_count, DType compute,
                                                PackFor use) const {
  const Shape heads{token_count, shape_.value_heads};
  Work work;
  work.qkv = at.take(compute, Shape{token_count, conv_columns()});
  work.log_decay = at.take(DType::kF32, heads);
  work.rate = at.take(DType::kF32, heads);
  if (use == PackFor::kInference) return work;
  work.normed = at.take(compute, Shape{token_count, value_columns()});
  work.grad_o = at.take(compute, Shape{token_count, value_columns()});
  work.grad_qkv = at.take(compute, Shape{token_count, conv_columns()});
  work.grad_log_decay = at.take(DType::kF32, heads);
  work.grad_rate = at.take(DType::kF32, heads);
  return work;
}

int64_t DeltaAttention::thread_scratch_bytes(int64_t token_count) const {
  return ops::delta_rule_scratch_bytes(shape_, token_count);
}

// Three multiply-adds for every element of a head's matrix.
double DeltaAttention::forward_flops(double token_count, double /*context_mean*/) const {
  return 6.0 * token_count *
         static_cast<double>(shape_.value_heads * shape_.key_dim * shape_.value_dim);
}

ops::DeltaGates DeltaAttention::gates(const BlockWeights& weights, const TensorView& in,
                                      const Work& work) const {
  return {.log_decay = work.log_decay,
          .rate = work.rate,
          .a = decay_of(in),
          .b = rate_of(in),
          .log_scale = weights.params[log_scale_].value,
          .bias = weights.params[decay_bias_].value,
          .rate_scale = rate_scale_};
}

ops::DeltaRuleForward DeltaAttention::rule(const Batch& batch, const TensorView& dst,
                                           const Work& work) const {
  return {.dst = dst,
          .q = queries_of(work.qkv),
          .k = keys_of(work.qkv),
          .v = values_of(work.qkv),
          .log_decay = work.log_decay,
          .rate = work.rate,
          .sequences = batch.sequences,
          .shape = shape_};
}

void DeltaAttention::prepare(const BlockContext& context, const BlockWeights& weights,
                             const Batch& batch, const TensorView& in, const Work& work) const {
  conv_.forward(context.stream, weights, batch, work.qkv, conv_of(in), context.states.inputs);
  ops::delta_gates_forward(context.stream, gates(weights, in, work));
}

void DeltaAttention::forward(const BlockContext& context, const BlockWeights& weights,
                             const Batch& batch, const TensorView& src, const TensorView& dst,
                             const AttentionMemory& memory) const {
  const auto [views, work] = place_forward(memory, batch.token_count(), context.compute);

  project(context, weights, src, views, memory);
  prepare(context, weights, batch, views.in, work);
  ops::DeltaRuleForward delta = rule(batch, views.o, work);
  delta.states = context.states.matrices;
  ops::delta_rule_forward(context.stream, delta);
  norm_.forward(context.stream, weights, dst, views.o, views.stats);
  ops::gate_forward(context.stream, dst, dst, gate_of(views.in), ops::GateKind::kSilu);
}

void DeltaAttention::backward_input(const BlockContext& context, const BlockWeights& weights,
                                    const Batch& batch, const TensorView& /*dst*/,
                                    const TensorView& grad_dst, const TensorView& grad_src,
                                    const AttentionMemory& memory) const {
  Stream& stream = context.stream;
  const auto [saved, pending, work] = place_backward(memory, batch.token_count(), context.compute);

  norm_.forward(stream, weights, work.normed, saved.o, {});
  ops::gate_backward(stream, pending.normed, gate_of(pending.in), grad_dst, work.normed,
                     gate_of(saved.in), ops::GateKind::kSilu);
  norm_.backward_input(stream, weights, work.grad_o, pending.normed, saved.o, saved.stats, false);

  prepare(context, weights, batch, saved.in, work);
  ops::delta_rule_backward(stream, {.grad_q = queries_of(work.grad_qkv),
                                    .grad_k = keys_of(work.grad_qkv),
                                    .grad_v = values_of(work.grad_qkv),
                                    .grad_log_decay = work.grad_log_decay,
                                    .grad_rate = work.grad_rate,
                                    .grad_dst = work.grad_o,
                                    .forward = rule(batch, {}, work)});
  ops::delta_gates_backward(stream, {.grad_a = decay_of(pending.in),
                                     .grad_b = rate_of(pending.in),
                                     .slopes_scale = pending.slopes_scale,
                                     .slopes_bias = pending.slopes_bias,
                                     .grad_log_decay = work.grad_log_decay,
                                     .grad_rate = work.grad_rate,
                                     .forward = gates(weights, saved.in, work)});
  conv_.backward_input(stream, weights, batch, conv_of(pending.in), pending.conv, work.grad_qkv,
                       conv_of(saved.in));
  project_backward_input(context, weights, grad_src, pending, memory);
}

void DeltaAttention::backward_weight(const BlockContext& context, const BlockWeights& weights,
                                     const Batch& batch, const TensorView& src,
                                     const AttentionMemory& memory) const {
  Stream& stream = context.stream;
  const auto [saved, pending, work] = place_backward(memory, batch.token_count(), context.compute);

  norm_.backward_weight(stream, weights, pending.normed, saved.o, saved.stats);
  conv_.backward_weight(stream, weights, batch, pending.conv, conv_of(saved.in));
  if (const Param& scale = weights.params[log_scale_]; scale.grad) {
    ops::bias_backward(stream, scale.grad, pending.slopes_scale);
    ops::bias_backward(stream, weights.params[decay_bias_].grad, pending.slopes_bias);
  }
  project_backward_weight(context, weights, src, saved, pending, memory);
}

}  // namespace jige::model
