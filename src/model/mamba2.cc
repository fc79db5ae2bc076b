#include "model/mamba2.h"

#include "ops/elementwise.h"
#include "ops/gate.h"
#include "ops/linear.h"

namespace jige::model {

Mamba2::Mamba2(const formats::ModelConfig& config, const Mamba2Names& names,
               const std::optional<formats::LoraConfig>& lora, DeviceKind device,
               std::vector<ParamSpec>& params)
    : config_(config.mamba2) {
  in_ = Projection({.parts = {{names.in, in_columns()}},
                    .inputs = config.hidden_size,
                    .bias = config_.bias,
                    .input_scale = config_.in_scale,
                    .scales = {{config_.value_columns(), config_.part_scales[0]},
                               {config_.value_columns(), config_.part_scales[1]},
                               {config_.key_columns(), config_.part_scales[2]},
                               {config_.key_columns(), config_.part_scales[3]},
                               {config_.heads, config_.part_scales[4]}},
                    .lora = lora,
                    .device = device},
                   params);
  conv_ = ConvLayer({.parts = {{names.conv, config_.conv_columns()}},
                     .kernel = config_.kernel,
                     .bias = config_.conv_bias,
                     .silu = true},
                    params);
  const auto add_heads = [&](const std::string& name, InitKind init, double init_std) {
    params.push_back(
        {.name = name, .shape = Shape{config_.heads}, .init = init, .init_std = init_std});
    return params.size() - 1;
  };
  log_scale_ = add_heads(names.log_scale, InitKind::kLogUniform, 16.0);
  step_bias_ = add_heads(names.step_bias, InitKind::kStep, 0.1);
  skip_ = add_heads(names.skip, InitKind::kOne, 0);
  if (!has_norm()) return;
  norm_ =
      GroupNormLayer(config.norm_eps, names.norm, config_.value_columns(), config_.groups, params);
}

Mamba2::Activations Mamba2::place_activations(Placement& at, int64_t token_count, DType compute,
                                              bool saved) const {
  Activations views;
  views.in = at.take(compute, Shape{token_count, in_columns()});
  views.o = at.take(compute, Shape{token_count, config_.value_columns()});
  views.u = in_.place_product(at, token_count, compute);
  if (saved && has_norm()) views.stats = norm_.place_stats(at, token_count);
  return views;
}

Mamba2::Gradients Mamba2::place_pending(Placement& at, int64_t token_count, DType compute) const {
  const Shape heads{token_count, config_.heads};
  Gradients pending;
  pending.in = at.take(compute, Shape{token_count, in_columns()});
  pending.conv = at.take(compute, Shape{token_count, config_.conv_columns()});
  if (has_norm()) pending.normed = at.take(compute, Shape{token_count, config_.value_columns()});
  pending.slopes_scale = at.take(DType::kF32, heads);
  pending.slopes_bias = at.take(DType::kF32, heads);
  pending.slopes_skip = at.take(DType::kF32, heads);
  pending.v = in_.place_product(at, token_count, compute);
  return pending;
}

Mamba2::Work Mamba2::place_work(Placement& at, int64_t token_count, DType compute,
                                PackFor use) const {
  const Shape heads{token_count, config_.heads};
  const Shape values{token_count, config_.value_columns()};
  Work work;
  work.conv = at.take(compute, Shape{token_count, config_.conv_columns()});
  work.log_decay = at.take(DType::kF32, heads);
  work.step = at.take(DType::kF32, heads);
  if (use == PackFor::kInference) return work;
  work.gated = at.take(compute, values);
  work.grad_gated = at.take(compute, values);
  work.grad_o = at.take(compute, values);
  work.grad_conv = at.take(compute, Shape{token_count, config_.conv_columns()});
  work.grad_log_decay = at.take(DType::kF32, heads);
  work.grad_step = at.take(DType::kF32, heads);
  return work;
}

int64_t Mamba2::thread_scratch_bytes(int64_t token_count) const {
  return ops::delta_rule_scratch_bytes(shape(), token_count);
}

// Two multiply-adds for every element of a head's matrix.
double Mamba2::forward_flops(double token_count, double /*context_mean*/) const {
  return 4.0 * token_count * static_cast<double>(config_.value_columns() * config_.state_dim);
}

ops::DeltaRuleShape Mamba2::shape() const {
  return {.key_heads = config_.groups,
          .value_heads = config_.heads,
          .key_dim = config_.state_dim,
          .value_dim = config_.head_dim,
          .corrects = false};
}

ops::DeltaGates Mamba2::gates(const BlockWeights& weights, const TensorView& in,
                              const Work& work) const {
  return {.log_decay = work.log_decay,
          .rate = work.step,
          .a = step_of(in),
          .b = {},
          .log_scale = weights.params[log_scale_].value,
          .bias = weights.params[step_bias_].value};
}

ops::DeltaRuleForward Mamba2::recurrence(const BlockWeights& weights, const Batch& batch,
                                         const TensorView& dst, const Work& work) const {
  return {.dst = dst,
          .q = queries_of(work.conv),
          .k = keys_of(work.conv),
          .v = values_of(work.conv),
          .log_decay = work.log_decay,
          .rate = work.step,
          .skip = weights.params[skip_].value,
          .states = {},
          .sequences = batch.sequences,
          .shape = shape()};
}

void Mamba2::prepare(const BlockContext& context, const BlockWeights& weights, const Batch& batch,
                     const TensorView& in, const Work& work) const {
  conv_.forward(context.stream, weights, batch, work.conv, conv_of(in), context.states.inputs);
  ops::delta_gates_forward(context.stream, gates(weights, in, work));
}

void Mamba2::forward(const BlockContext& context, const BlockWeights& weights, const Batch& batch,
                     const TensorView& src, const TensorView& dst,
                     const AttentionMemory& memory) const {
  const auto [views, work] = place_forward(memory, batch.token_count(), context.compute);

  project(context, weights, src, views, memory);
  prepare(context, weights, batch, views.in, work);
  ops::DeltaRuleForward rule = recurrence(weights, batch, views.o, work);
  rule.states = context.states.matrices;
  ops::delta_rule_forward(context.stream, rule);
  forward_norm(context.stream, weights, dst, views);
}

void Mamba2::forward_norm(Stream& stream, const BlockWeights& weights, const TensorView& dst,
                          const Activations& views) const {
  if (norm_first()) norm_.forward(stream, weights, dst, views.o, views.stats);
  ops::gate_forward(stream, dst, norm_first() ? dst : views.o, gate_of(views.in),
                    ops::GateKind::kSilu);
  if (has_norm() && !norm_first()) norm_.forward(stream, weights, dst, dst, views.stats);
}

void Mamba2::backward_norm(Stream& stream, const BlockWeights& weights, const Activations& saved,
                           const TensorView& grad_dst, const Gradients& pending,
                           const Work& work) const {
  const TensorView gate = gate_of(saved.in);
  const TensorView grad_gate = gate_of(pending.in);
  const auto silu = ops::GateKind::kSilu;
  if (!has_norm()) {
    ops::gate_backward(stream, work.grad_o, grad_gate, grad_dst, saved.o, gate, silu);
  } else if (norm_first()) {
    norm_.forward(stream, weights, work.gated, saved.o, {});
    ops::gate_backward(stream, pending.normed, grad_gate, grad_dst, work.gated, gate, silu);
    norm_.backward_input(stream, weights, work.grad_o, pending.normed, saved.o, saved.stats);
  } else {
    ops::scale(stream, pending.normed, grad_dst, 1.0f);
    ops::gate_forward(stream, work.gated, saved.o, gate, silu);
    norm_.backward_input(stream, weights, work.grad_gated, pending.normed, work.gated, saved.stats);
    ops::gate_backward(stream, work.grad_o, grad_gate, work.grad_gated, saved.o, gate, silu);
  }
}

void Mamba2::backward_recurrence(const BlockContext& context, const BlockWeights& weights,
                                 const Batch& batch, const Activations& saved,
                                 const Gradients& pending, const Work& work) const {
  Stream& stream = context.stream;
  prepare(context, weights, batch, saved.in, work);
  ops::delta_rule_backward(stream, {.grad_q = queries_of(work.grad_conv),
                                    .grad_k = keys_of(work.grad_conv),
                                    .grad_v = values_of(work.grad_conv),
                                    .grad_log_decay = work.grad_log_decay,
                                    .grad_rate = work.grad_step,
                                    .slopes_skip = pending.slopes_skip,
                                    .grad_dst = work.grad_o,
                                    .forward = recurrence(weights, batch, {}, work)});
  ops::delta_gates_backward(stream, {.grad_a = step_of(pending.in),
                                     .grad_b = {},
                                     .slopes_scale = pending.slopes_scale,
                                     .slopes_bias = pending.slopes_bias,
                                     .grad_log_decay = work.grad_log_decay,
                                     .grad_rate = work.grad_step,
                                     .forward = gates(weights, saved.in, work)});
  conv_.backward_input(stream, weights, batch, conv_of(pending.in), pending.conv, work.grad_conv,
                       conv_of(saved.in));
}

void Mamba2::backward_input(const BlockContext& context, const BlockWeights& weights,
                            const Batch& batch, const TensorView& /*dst*/,
                            const TensorView& grad_dst, const TensorView& grad_src,
                            const AttentionMemory& memory) const {
  const auto [saved, pending, work] = place_backward(memory, batch.token_count(), context.compute);
  backward_norm(context.stream, weights, saved, grad_dst, pending, work);
  backward_recurrence(context, weights, batch, saved, pending, work);
  project_backward_input(context, weights, grad_src, pending, memory);
}

void Mamba2::backward_weight(const BlockContext& context, const BlockWeights& weights,
                             const Batch& batch, const TensorView& src,
                             const AttentionMemory& memory) const {
  Stream& stream = context.stream;
  const auto [saved, pending, work] = place_backward(memory, batch.token_count(), context.compute);

  if (has_norm() && norm_.wants_gradient(weights)) {
    if (!norm_first()) {
      ops::gate_forward(stream, work.gated, saved.o, gate_of(saved.in), ops::GateKind::kSilu);
    }
    norm_.backward_weight(stream, weights, pending.normed, norm_first() ? saved.o : work.gated,
                          saved.stats);
  }
  conv_.backward_weight(stream, weights, batch, pending.conv, conv_of(saved.in));
  if (const Param& scale = weights.params[log_scale_]; scale.grad) {
    ops::bias_backward(stream, scale.grad, pending.slopes_scale);
    ops::bias_backward(stream, weights.params[step_bias_].grad, pending.slopes_bias);
    ops::bias_backward(stream, weights.params[skip_].grad, pending.slopes_skip);
  }
  project_backward_weight(context, weights, src, saved, pending, memory);
}

}  // namespace jige::model
