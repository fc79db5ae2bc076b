#include "model/mamba1.h"

#include <cmath>

#include "ops/elementwise.h"
#include "ops/gate.h"

namespace jige::model {
namespace {

// Its norms are the weight itself, and may have an epsilon of their own.
formats::ModelConfig with_step_norms(formats::ModelConfig config) {
  if (config.mamba1.norm_eps > 0) config.norm_eps = config.mamba1.norm_eps;
  return config;
}

}  // namespace

Mamba1::Mamba1(const formats::ModelConfig& config, const Mamba1Names& names,
               const std::optional<formats::LoraConfig>& lora, DeviceKind device,
               std::vector<ParamSpec>& params)
    : config_(config.mamba1) {
  const int64_t channels = config_.columns;
  in_ = Projection({.parts = {{names.in, 2 * channels}},
                    .inputs = config.hidden_size,
                    .bias = config_.bias,
                    .lora = lora,
                    .device = device},
                   params);
  conv_ = ConvLayer({.parts = {{names.conv, channels}},
                     .kernel = config_.kernel,
                     .bias = config_.conv_bias,
                     .silu = true},
                    params);
  parts_ = Projection({.parts = {{names.parts, part_columns()}},
                       .inputs = channels,
                       .whole = true,
                       .lora = lora,
                       .device = device},
                      params);
  if (has_norms()) {
    const int64_t widths[] = {config_.step_rank, config_.state_dim, config_.state_dim};
    for (size_t i = 0; i < norms_.size(); ++i) {
      norms_[i] = NormLayer(with_step_norms(config), names.norms[i], widths[i], false, params);
    }
  }
  // transformers multiplies with the weight itself, past an adapter.
  steps_ = Projection({.parts = {{.name = names.steps, .outputs = channels, .plain = true}},
                       .inputs = config_.step_rank,
                       .whole = true,
                       .init_std = 1.0 / std::sqrt(3.0 * static_cast<double>(config_.step_rank)),
                       .device = device},
                      params);
  const auto add = [&](const std::string& name, Shape shape, InitKind init, double init_std) {
    params.push_back({.name = name, .shape = shape, .init = init, .init_std = init_std});
    return params.size() - 1;
  };
  step_bias_ = add(names.steps + ".bias", Shape{channels}, InitKind::kStep, 0.1);
  log_scale_ = add(names.log_scale, Shape{channels, config_.state_dim}, InitKind::kLogColumn, 0);
  params.back().whole = true;
  skip_ = add(names.skip, Shape{channels}, InitKind::kOne, 0);
}

void Mamba1::plan_forward(Placement& at, DType compute, ops::WeightFormat format) {
  for (Projection* projection : {&in_, &parts_, &steps_}) {
    projection->plan_forward(at, compute, format);
  }
}

void Mamba1::plan_backward(Placement& at, DType compute, ops::WeightFormat format) {
  for (Projection* projection : {&in_, &parts_, &steps_}) {
    projection->plan_backward(at, compute, format);
  }
}

void Mamba1::pack(Stream& stream, const BlockWeights& weights, DType compute, PackFor use) const {
  for (const Projection* projection : projections()) {
    projection->pack(stream, weights, compute, use);
  }
}

Mamba1::Activations Mamba1::place_activations(Placement& at, int64_t token_count, DType compute,
                                              bool saves) const {
  Activations views;
  views.in = at.take(compute, Shape{token_count, 2 * config_.columns});
  views.parts = at.take(compute, Shape{token_count, part_columns()});
  views.a = at.take(compute, Shape{token_count, config_.columns});
  views.o = at.take(compute, Shape{token_count, config_.columns});
  views.u_in = in_.place_product(at, token_count, compute);
  views.u_parts = parts_.place_product(at, token_count, compute);
  if (!saves || !has_norms()) return views;
  for (size_t i = 0; i < norms_.size(); ++i)
    views.stats[i] = norms_[i].place_stats(at, token_count);
  return views;
}

Mamba1::Gradients Mamba1::place_pending(Placement& at, int64_t token_count, DType compute) const {
  const Shape channels{token_count, config_.columns};
  Gradients pending;
  pending.in = at.take(compute, Shape{token_count, 2 * config_.columns});
  pending.conv = at.take(compute, channels);
  pending.parts = at.take(compute, Shape{token_count, part_columns()});
  pending.normed =
      has_norms() ? at.take(compute, Shape{token_count, part_columns()}) : pending.parts;
  pending.a = at.take(compute, channels);
  pending.o = at.take(compute, channels);
  pending.v_in = in_.place_product(at, token_count, compute);
  pending.v_parts = parts_.place_product(at, token_count, compute);
  return pending;
}

Mamba1::Work Mamba1::place_work(Placement& at, int64_t token_count, DType compute,
                                PackFor use) const {
  const Shape channels{token_count, config_.columns};
  Work work;
  work.x = at.take(compute, channels);
  if (has_norms()) work.normed = at.take(compute, Shape{token_count, part_columns()});
  if (use == PackFor::kInference) return work;
  work.grad_x = at.take(compute, channels);
  work.from_parts = at.take(compute, channels);
  const int64_t sums = ops::selective_scan_sum_columns(config_.columns, config_.state_dim);
  work.sums = at.take(DType::kF32, Shape{token_count, sums});
  return work;
}

int64_t Mamba1::thread_scratch_bytes(int64_t token_count) const {
  return ops::selective_scan_scratch_bytes(config_.state_dim, token_count);
}

// Two multiply-adds and an exponential for every number of a channel.
double Mamba1::forward_flops(double token_count, double /*context_mean*/) const {
  return 5.0 * token_count * static_cast<double>(config_.columns * config_.state_dim);
}

void Mamba1::forward_norms(Stream& stream, const BlockWeights& weights, const Activations& views,
                           const Work& work, bool keeps_stats) const {
  if (!has_norms()) return;
  for (size_t i = 0; i < norms_.size(); ++i) {
    norms_[i].forward(stream, weights, part_of(work.normed, i), part_of(views.parts, i),
                      keeps_stats ? views.stats[i] : NormStats{});
  }
}

ops::SelectiveScan Mamba1::scan(const BlockWeights& weights, const Batch& batch,
                                const Activations& views, const Work& work) const {
  return {.dst = views.o,
          .x = work.x,
          .a = views.a,
          .b = part_of(scanned(views, work), 1),
          .c = part_of(scanned(views, work), 2),
          .log_scale = weights.params[log_scale_].value,
          .bias = weights.params[step_bias_].value,
          .skip = weights.params[skip_].value,
          .states = {},
          .sequences = batch.sequences};
}

void Mamba1::forward(const BlockContext& context, const BlockWeights& weights, const Batch& batch,
                     const TensorView& src, const TensorView& dst,
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
  conv_.forward(stream, weights, batch, work.x, conv_of(views.in), context.states.inputs);
  run(parts_, views.parts, work.x, views.u_parts);
  forward_norms(stream, weights, views, work, true);
  run(steps_, views.a, part_of(scanned(views, work), 0), {});
  ops::SelectiveScan args = scan(weights, batch, views, work);
  args.states = context.states.matrices;
  ops::selective_scan_forward(stream, args);
  ops::gate_forward(stream, dst, views.o, gate_of(views.in), ops::GateKind::kSilu);
}

void Mamba1::prepare(const BlockContext& context, const BlockWeights& weights, const Batch& batch,
                     const Activations& saved, const Work& work) const {
  conv_.forward(context.stream, weights, batch, work.x, conv_of(saved.in), {});
  forward_norms(context.stream, weights, saved, work, false);
}

void Mamba1::backward_scan(const BlockContext& context, const BlockWeights& weights,
                           const Batch& batch, const Activations& saved, const Gradients& pending,
                           const Work& work, const AttentionMemory& memory) const {
  Stream& stream = context.stream;
  ops::selective_scan_backward_input(stream, {.grad_x = work.grad_x,
                                              .grad_a = pending.a,
                                              .grad_b = part_of(pending.normed, 1),
                                              .grad_c = part_of(pending.normed, 2),
                                              .sums = work.sums,
                                              .grad_dst = pending.o,
                                              .forward = scan(weights, batch, saved, work)});
  steps_.backward_input(stream, weights, context.compute,
                        {.grad_src = part_of(pending.normed, 0),
                         .grad_dst = pending.a,
                         .product = {},
                         .scratch = memory.adapter_scratch,
                         .dropout = memory.dropout});
  for (size_t i = 0; has_norms() && i < norms_.size(); ++i) {
    norms_[i].backward_input(stream, weights, part_of(pending.parts, i), part_of(pending.normed, i),
                             part_of(saved.parts, i), saved.stats[i], false);
  }
  parts_.backward_input(stream, weights, context.compute,
                        {.grad_src = work.from_parts,
                         .grad_dst = pending.parts,
                         .product = pending.v_parts,
                         .scratch = memory.adapter_scratch,
                         .dropout = memory.dropout});
  ops::add(stream, work.grad_x, work.grad_x, work.from_parts);
}

void Mamba1::backward_input(const BlockContext& context, const BlockWeights& weights,
                            const Batch& batch, const TensorView& /*dst*/,
                            const TensorView& grad_dst, const TensorView& grad_src,
                            const AttentionMemory& memory) const {
  Stream& stream = context.stream;
  const auto [saved, pending, work] = place_backward(memory, batch.token_count(), context.compute);
  ops::gate_backward(stream, pending.o, gate_of(pending.in), grad_dst, saved.o, gate_of(saved.in),
                     ops::GateKind::kSilu);
  prepare(context, weights, batch, saved, work);
  backward_scan(context, weights, batch, saved, pending, work, memory);
  conv_.backward_input(stream, weights, batch, conv_of(pending.in), pending.conv, work.grad_x,
                       conv_of(saved.in));
  in_.backward_input(stream, weights, context.compute,
                     {.grad_src = grad_src,
                      .grad_dst = pending.in,
                      .product = pending.v_in,
                      .scratch = memory.adapter_scratch,
                      .dropout = memory.dropout});
}

void Mamba1::backward_weight(const BlockContext& context, const BlockWeights& weights,
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
  const Param& scale = weights.params[log_scale_];
  if (scale.grad || parts_.wants_gradient(weights)) prepare(context, weights, batch, saved, work);
  if (scale.grad) {
    ops::selective_scan_backward_weight(stream, {.grad_log_scale = scale.grad,
                                                 .grad_bias = weights.params[step_bias_].grad,
                                                 .grad_skip = weights.params[skip_].grad,
                                                 .grad_dst = pending.o,
                                                 .forward = scan(weights, batch, saved, work)});
  }
  run(steps_, pending.a, part_of(scanned(saved, work), 0), {}, {});
  for (size_t i = 0; has_norms() && i < norms_.size(); ++i) {
    norms_[i].backward_weight(stream, weights, part_of(pending.normed, i), part_of(saved.parts, i),
                              saved.stats[i]);
  }
  run(parts_, pending.parts, work.x, saved.u_parts, pending.v_parts);
  conv_.backward_weight(stream, weights, batch, pending.conv, conv_of(saved.in));
  run(in_, pending.in, src, saved.u_in, pending.v_in);
}

}  // namespace jige::model
