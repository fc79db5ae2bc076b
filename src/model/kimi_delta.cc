#include "model/kimi_delta.h"

#include "ops/elementwise.h"
#include "ops/gate.h"
#include "ops/linear.h"

namespace jige::model {

KimiDelta::KimiDelta(const formats::ModelConfig& config, const KimiDeltaNames& names,
                     const std::optional<formats::LoraConfig>& lora, DeviceKind device,
                     std::vector<ParamSpec>& params)
    : shape_{.key_heads = config.delta.value_heads,
             .value_heads = config.delta.value_heads,
             .key_dim = config.delta.key_dim,
             .value_dim = config.delta.value_dim,
             .decays_by_key = true} {
  std::vector<ProjectionOptions::Part> parts = fused_parts(names.qkv, {inner(), inner(), inner()});
  parts.insert(parts.end(), {{names.rate, heads()},
                             {.name = names.decay_down, .outputs = head_dim(), .plain = true},
                             {names.gate_down, head_dim()}});
  in_ = Projection({.parts = parts, .inputs = config.hidden_size, .lora = lora, .device = device},
                   params);
  // transformers has decays in a module of their own in memory, so adapters leave them alone.
  const auto up = [&](const std::string& name, bool plain) {
    return Projection({.parts = {{.name = name, .outputs = inner(), .plain = plain}},
                       .inputs = head_dim(),
                       .lora = lora,
                       .device = device},
                      params);
  };
  decay_ = up(names.decay_up, true);
  gate_ = up(names.gate_up, false);
  ConvLayerOptions conv{
      .parts = {}, .whole = names.conv_whole, .kernel = config.delta.kernel, .silu = true};
  for (const std::string& name : names.conv) conv.parts.push_back({name, inner()});
  conv_ = ConvLayer(conv, params);
  log_scale_ = params.size();
  params.push_back({.name = names.log_scale,
                    .shape = Shape{1, 1, heads(), 1},
                    .init = InitKind::kLogUniform,
                    .init_std = 16.0});
  decay_bias_ = params.size();
  params.push_back({.name = names.decay_bias,
                    .shape = Shape{inner()},
                    .init = InitKind::kStep,
                    .init_std = 0.1});
  norm_ = NormLayer(config, names.norm, head_dim(), false, params);
}

void KimiDelta::plan_forward(Placement& at, DType compute, ops::WeightFormat format) {
  for (Projection* projection : {&in_, &decay_, &gate_}) {
    projection->plan_forward(at, compute, format);
  }
}

void KimiDelta::plan_backward(Placement& at, DType compute, ops::WeightFormat format) {
  for (Projection* projection : {&in_, &decay_, &gate_}) {
    projection->plan_backward(at, compute, format);
  }
}

void KimiDelta::pack(Stream& stream, const BlockWeights& weights, DType compute,
                     PackFor use) const {
  for (const Projection* projection : projections()) {
    projection->pack(stream, weights, compute, use);
  }
}

KimiDelta::Activations KimiDelta::place_activations(Placement& at, int64_t token_count,
                                                    DType compute, bool saves) const {
  const Shape columns{token_count, inner()};
  Activations views;
  views.in = at.take(compute, Shape{token_count, in_columns()});
  views.a = at.take(compute, columns);
  views.z = at.take(compute, columns);
  views.o = at.take(compute, columns);
  views.u_in = in_.place_product(at, token_count, compute);
  views.u_decay = decay_.place_product(at, token_count, compute);
  views.u_gate = gate_.place_product(at, token_count, compute);
  if (saves) views.stats = norm_.place_stats(at, token_count, heads());
  return views;
}

KimiDelta::Gradients KimiDelta::place_pending(Placement& at, int64_t token_count,
                                              DType compute) const {
  const Shape columns{token_count, inner()};
  Gradients pending;
  pending.in = at.take(compute, Shape{token_count, in_columns()});
  pending.a = at.take(compute, columns);
  pending.z = at.take(compute, columns);
  pending.conv = at.take(compute, Shape{token_count, 3 * inner()});
  pending.normed = at.take(compute, columns);
  pending.slopes_scale = at.take(DType::kF32, Shape{token_count, heads()});
  pending.slopes_bias = at.take(DType::kF32, columns);
  pending.v_in = in_.place_product(at, token_count, compute);
  pending.v_decay = decay_.place_product(at, token_count, compute);
  pending.v_gate = gate_.place_product(at, token_count, compute);
  return pending;
}

KimiDelta::Work KimiDelta::place_work(Placement& at, int64_t token_count, DType compute,
                                      PackFor use) const {
  const Shape columns{token_count, inner()};
  const Shape numbers{token_count, heads()};
  Work work;
  work.qkv = at.take(compute, Shape{token_count, 3 * inner()});
  work.log_decay = at.take(DType::kF32, columns);
  work.rate = at.take(DType::kF32, numbers);
  if (use == PackFor::kInference) return work;
  work.normed = at.take(compute, columns);
  work.grad_o = at.take(compute, columns);
  work.grad_qkv = at.take(compute, Shape{token_count, 3 * inner()});
  work.grad_log_decay = at.take(DType::kF32, columns);
  work.grad_rate = at.take(DType::kF32, numbers);
  return work;
}

int64_t KimiDelta::thread_scratch_bytes(int64_t token_count) const {
  return ops::delta_rule_scratch_bytes(shape_, token_count);
}

// Three multiply-adds for every element of a head's matrix.
double KimiDelta::forward_flops(double token_count, double /*context_mean*/) const {
  return 6.0 * token_count * static_cast<double>(inner() * head_dim());
}

ops::DeltaGates KimiDelta::gates(const BlockWeights& weights, const Activations& views,
                                 const Work& work) const {
  return {.log_decay = work.log_decay,
          .rate = work.rate,
          .a = views.a,
          .b = rate_of(views.in),
          .log_scale = weights.params[log_scale_].value,
          .bias = weights.params[decay_bias_].value};
}

ops::DeltaRuleForward KimiDelta::rule(const Batch& batch, const TensorView& dst,
                                      const Work& work) const {
  return {.dst = dst,
          .q = part_of(work.qkv, 0),
          .k = part_of(work.qkv, 1),
          .v = part_of(work.qkv, 2),
          .log_decay = work.log_decay,
          .rate = work.rate,
          .skip = {},
          .states = {},
          .sequences = batch.sequences,
          .shape = shape_};
}

void KimiDelta::prepare(const BlockContext& context, const BlockWeights& weights,
                        const Batch& batch, const Activations& views, const Work& work) const {
  conv_.forward(context.stream, weights, batch, work.qkv, conv_of(views.in), context.states.inputs);
  ops::delta_gates_forward(context.stream, gates(weights, views, work));
}

void KimiDelta::forward(const BlockContext& context, const BlockWeights& weights,
                        const Batch& batch, const TensorView& src, const TensorView& dst,
                        const AttentionMemory& memory) const {
  Stream& stream = context.stream;
  const auto [views, work] = place_forward(memory, batch.token_count(), context.compute);
  const auto run = [&](const Projection& projection, const TensorView& to, const TensorView& from,
                       const TensorView& product) {
    projection.forward(stream, weights, context.compute,
                       {.dst = to,
                        .src = from,
                        .product = product,
                        .scratch = memory.adapter_scratch,
                        .dropout = memory.dropout,
                        .adapters = context.adapters});
  };
  run(in_, views.in, src, views.u_in);
  run(decay_, views.a, decay_of(views.in), views.u_decay);
  run(gate_, views.z, gate_of(views.in), views.u_gate);
  prepare(context, weights, batch, views, work);
  ops::DeltaRuleForward delta = rule(batch, views.o, work);
  delta.states = context.states.matrices;
  ops::delta_rule_forward(stream, delta);
  norm_.forward(stream, weights, dst, views.o, views.stats);
  ops::gate_forward(stream, dst, dst, views.z, ops::GateKind::kSigmoid);
}

void KimiDelta::backward_rule(const BlockContext& context, const BlockWeights& weights,
                              const Batch& batch, const Activations& saved,
                              const Gradients& pending, const Work& work) const {
  Stream& stream = context.stream;
  prepare(context, weights, batch, saved, work);
  ops::delta_rule_backward(stream, {.grad_q = part_of(work.grad_qkv, 0),
                                    .grad_k = part_of(work.grad_qkv, 1),
                                    .grad_v = part_of(work.grad_qkv, 2),
                                    .grad_log_decay = work.grad_log_decay,
                                    .grad_rate = work.grad_rate,
                                    .slopes_skip = {},
                                    .grad_dst = work.grad_o,
                                    .forward = rule(batch, {}, work)});
  ops::delta_gates_backward(stream, {.grad_a = pending.a,
                                     .grad_b = rate_of(pending.in),
                                     .slopes_scale = pending.slopes_scale,
                                     .slopes_bias = pending.slopes_bias,
                                     .grad_log_decay = work.grad_log_decay,
                                     .grad_rate = work.grad_rate,
                                     .forward = gates(weights, saved, work)});
  conv_.backward_input(stream, weights, batch, conv_of(pending.in), pending.conv, work.grad_qkv,
                       conv_of(saved.in));
}

void KimiDelta::backward_input(const BlockContext& context, const BlockWeights& weights,
                               const Batch& batch, const TensorView& /*dst*/,
                               const TensorView& grad_dst, const TensorView& grad_src,
                               const AttentionMemory& memory) const {
  Stream& stream = context.stream;
  const auto [saved, pending, work] = place_backward(memory, batch.token_count(), context.compute);
  const auto run = [&](const Projection& projection, const TensorView& to, const TensorView& from,
                       const TensorView& product) {
    projection.backward_input(stream, weights, context.compute,
                              {.grad_src = to,
                               .grad_dst = from,
                               .product = product,
                               .scratch = memory.adapter_scratch,
                               .dropout = memory.dropout});
  };
  norm_.forward(stream, weights, work.normed, saved.o, {});
  ops::gate_backward(stream, pending.normed, pending.z, grad_dst, work.normed, saved.z,
                     ops::GateKind::kSigmoid);
  norm_.backward_input(stream, weights, work.grad_o, pending.normed, saved.o, saved.stats, false);
  backward_rule(context, weights, batch, saved, pending, work);
  run(decay_, decay_of(pending.in), pending.a, pending.v_decay);
  run(gate_, gate_of(pending.in), pending.z, pending.v_gate);
  run(in_, grad_src, pending.in, pending.v_in);
}

void KimiDelta::backward_weight(const BlockContext& context, const BlockWeights& weights,
                                const Batch& batch, const TensorView& src,
                                const AttentionMemory& memory) const {
  Stream& stream = context.stream;
  const auto [saved, pending, work] = place_backward(memory, batch.token_count(), context.compute);
  const auto run = [&](const Projection& projection, const TensorView& grad_dst,
                       const TensorView& from, const TensorView& u, const TensorView& v) {
    if (!projection.wants_gradient(weights)) return;
    projection.backward_weight(stream, weights, context.compute,
                               {.grad_dst = grad_dst,
                                .src = from,
                                .product_forward = u,
                                .product_backward = v,
                                .scratch = memory.weight_scratch,
                                .dropout = memory.dropout,
                                .gradients = context.gradients});
  };
  norm_.backward_weight(stream, weights, pending.normed, saved.o, saved.stats);
  conv_.backward_weight(stream, weights, batch, pending.conv, conv_of(saved.in));
  if (const Param& scale = weights.params[log_scale_]; scale.grad) {
    ops::bias_backward(stream, scale.grad, pending.slopes_scale);
    ops::bias_backward(stream, weights.params[decay_bias_].grad, pending.slopes_bias);
  }
  run(decay_, pending.a, decay_of(saved.in), saved.u_decay, pending.v_decay);
  run(gate_, pending.z, gate_of(saved.in), saved.u_gate, pending.v_gate);
  run(in_, pending.in, src, saved.u_in, pending.v_in);
}

}  // namespace jige::model
