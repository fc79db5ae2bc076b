#include "model/dense_mlp.h"

#include <cmath>

#include "ops/experts.h"
#include "ops/linear.h"
#include "ops/row_spread.h"

namespace jige::model {
namespace {

// Of xIELU, where training begins.
constexpr double kCurvature = 0.8;
constexpr double kBeta = 0.5;
constexpr double kEps = -1e-6;

}  // namespace

ops::Activation plain_activation(formats::ActivationKind activation) {
  switch (activation) {
    case formats::ActivationKind::kGeluErf:
      return ops::Activation::kGeluErf;
    case formats::ActivationKind::kRelu:
      return ops::Activation::kRelu;
    case formats::ActivationKind::kReluSquared:
      return ops::Activation::kReluSquared;
    case formats::ActivationKind::kSilu:
      return ops::Activation::kSilu;
    default:
      return ops::Activation::kGeluTanh;
  }
}

namespace {

std::vector<ProjectionOptions::Part> input_parts(const DenseMlpOptions& options, bool gated) {
  auto parts = fused_parts(options.input, {options.size, gated ? options.size : 0});
  if (options.gate_last) parts[0].stored_rows = StoredRows{.swapped = options.size};
  return parts;
}

}  // namespace

DenseMlp::DenseMlp(const formats::ModelConfig& config, const DenseMlpOptions& options,
                   std::vector<ParamSpec>& params)
    : size_(options.size), activation_(config.activation) {
  if (options.sparsity > 0) cut_ = ops::normal_deviations(options.sparsity);
  input_ = Projection({.parts = input_parts(options, gated()),
                       .inputs = config.hidden_size,
                       .bias = config.mlp_bias && config.mlp_input_bias,
                       .transposed = options.transposed,
                       .scales = {{size_, config.mlp_gate_scale}},
                       .bounded = options.bounded,
                       .lora = options.lora,
                       .device = options.device},
                      params);
  output_ = Projection({.parts = {{options.output, config.hidden_size}},
                        .inputs = size_,
                        .bias = config.mlp_bias,
                        .transposed = options.transposed,
                        .input_scale = options.activated_scale,
                        .scales = {{config.hidden_size, config.mlp_out_scale}},
                        .bounded = options.bounded,
                        .init_std = options.output_std,
                        .lora = options.lora,
                        .device = options.device},
                       params);
  if (!curved()) return;
  curve_ = params.size();
  const auto add = [&](const char* name, double value, bool fixed) {
    params.push_back({.name = options.curve + name,
                      .shape = Shape{1},
                      .init = InitKind::kConstant,
                      .init_std = value,
                      .fixed = fixed,
                      .as_scalar = fixed});
  };
  // What a softplus makes 0.8, and beta more than which it makes 0.8.
  add("alpha_p", std::log(std::expm1(kCurvature)), false);
  add("alpha_n", std::log(std::expm1(kCurvature - kBeta)), false);
  add("beta", kBeta, true);
  add("eps", kEps, true);
}

ops::Xielu DenseMlp::curve(const BlockWeights& weights) const {
  const auto value = [&](size_t i) { return weights.params[curve_ + i].value; };
  return {.alpha_p = value(0), .alpha_n = value(1), .beta = value(2), .eps = value(3)};
}

void DenseMlp::plan_forward(Placement& at, DType compute, ops::WeightFormat format) {
  input_.plan_forward(at, compute, format);
  output_.plan_forward(at, compute, format);
}

void DenseMlp::plan_backward(Placement& at, DType compute, ops::WeightFormat format) {
  input_.plan_backward(at, compute, format);
  output_.plan_backward(at, compute, format);
}

DenseMlp::Saved DenseMlp::place_saved(Placement& at, int64_t token_count, DType compute,
                                      bool keeps_gate) const {
  Saved saved;
  saved.ffn = at.take(compute, Shape{token_count, ffn_columns()});
  if (sparse() && keeps_gate) saved.gate = at.take(compute, Shape{token_count, size_});
  saved.u_input = input_.place_product(at, token_count, compute);
  saved.u_output = output_.place_product(at, token_count, compute);
  return saved;
}

DenseMlp::Pending DenseMlp::place_pending(Placement& at, int64_t token_count, DType compute) const {
  Pending pending;
  pending.ffn = at.take(compute, Shape{token_count, ffn_columns()});
  pending.v_input = input_.place_product(at, token_count, compute);
  pending.v_output = output_.place_product(at, token_count, compute);
  if (curved()) pending.slopes = at.take(DType::kF32, Shape{token_count, 2});
  return pending;
}

void DenseMlp::forward(Stream& stream, const BlockWeights& weights, DType compute,
                       const TensorView& dst, const TensorView& src, const Saved& saved,
                       const Work& work) const {
  if (work.kept) return forward_kept(stream, weights, compute, dst, src, saved, work);
  const TensorView activated = forward_input(stream, weights, compute, src, saved, work);
  if (work.row_logits) ops::gate_rows(stream, activated, work.row_logits);
  output_.forward(stream, weights, compute,
                  {.dst = dst,
                   .src = activated,
                   .product = saved.u_output,
                   .scratch = work.adapter_scratch,
                   .dropout = work.dropout,
                   .adapters = work.adapters,
                   .addend = work.addend});
}

TensorView DenseMlp::forward_input(Stream& stream, const BlockWeights& weights, DType compute,
                                   const TensorView& src, const Saved& saved,
                                   const Work& work) const {
  Projection::Forward product = {.dst = saved.ffn,
                                 .src = src,
                                 .product = saved.u_input,
                                 .scratch = work.adapter_scratch,
                                 .dropout = work.dropout,
                                 .past_caches = true,
                                 .adapters = work.adapters,
                                 .norm = work.norm};
  const bool one_pass = activation_ != formats::ActivationKind::kGeGluErf;
  if (gated() && one_pass && !sparse() && !work.saves) {
    const bool swiglu = activation_ == formats::ActivationKind::kSwiGlu;
    product.dst = saved.ffn.column_range(0, size_);
    if (input_.forward_gated(stream, weights, compute, product,
                             swiglu ? ops::GatedUnit::kSwiGlu : ops::GatedUnit::kGeGlu)) {
      return product.dst;
    }
    product.dst = saved.ffn;
  }
  input_.forward(stream, weights, compute, product);
  if (sparse()) {
    const TensorView gate = saved.ffn.column_range(0, size_);
    if (saved.gate) ops::scale(stream, saved.gate, gate, 1.0f);
    ops::row_cut(stream, gate, gate, *cut_);
  }
  activate(stream, weights, work.activated, saved.ffn);
  return work.activated;
}

void DenseMlp::backward_input(Stream& stream, const BlockWeights& weights, DType compute,
                              const TensorView& grad_src, const TensorView& grad_dst,
                              const Saved& saved, const Pending& pending, const Work& work) const {
  if (work.kept) {
    return backward_input_kept(stream, weights, compute, grad_src, grad_dst, saved, pending, work);
  }
  const TensorView& grad_activated = work.activated;
  output_.backward_input(stream, weights, compute,
                         {.grad_src = grad_activated,
                          .grad_dst = grad_dst,
                          .product = pending.v_output,
                          .scratch = work.adapter_scratch,
                          .dropout = work.dropout,
                          .past_caches = true});
  if (work.row_logits) ops::gate_rows(stream, grad_activated, work.row_logits);
  backward_activate(stream, weights, pending, grad_activated, saved.ffn);
  if (work.row_logits) {
    ops::gate_rows_backward(stream, work.grad_row_logits, grad_activated,
                            saved.ffn.column_range(0, size_), work.row_logits);
  }
  if (sparse()) {
    const TensorView grad_gate = pending.ffn.column_range(0, size_);
    ops::row_cut_backward(stream, grad_gate, grad_gate, saved.gate, *cut_);
  }
  input_.backward_input(stream, weights, compute,
                        {.grad_src = grad_src,
                         .grad_dst = pending.ffn,
                         .product = pending.v_input,
                         .scratch = work.adapter_scratch,
                         .dropout = work.dropout});
}

void DenseMlp::backward_output_weight(Stream& stream, const BlockWeights& weights, DType compute,
                                      const TensorView& grad_dst, GradientUse gradients,
                                      const Saved& saved, const Pending& pending,
                                      const Work& work) const {
  if (work.kept) {
    return backward_output_weight_kept(stream, weights, compute, grad_dst, gradients, saved, work);
  }
  TensorView activated = saved.ffn.column_range(0, size_);  // X left it there
  if (!gated()) {
    activated = work.activated;
    activate(stream, weights, activated, saved.ffn);
  }
  for (int64_t i = 0; curved() && i < 2; ++i) {
    const TensorView& grad = weights.params[curve_ + static_cast<size_t>(i)].grad;
    if (grad) ops::bias_backward(stream, grad, pending.slopes.column_range(i, i + 1));
  }
  output_.backward_weight(stream, weights, compute,
                          {.grad_dst = grad_dst,
                           .src = activated,
                           .product_forward = saved.u_output,
                           .product_backward = pending.v_output,
                           .scratch = work.weight_scratch,
                           .dropout = work.dropout,
                           .gradients = gradients});
}

void DenseMlp::backward_input_weight(Stream& stream, const BlockWeights& weights, DType compute,
                                     const TensorView& src, GradientUse gradients,
                                     const Saved& saved, const Pending& pending,
                                     const Work& work) const {
  if (work.kept) {
    const bool planned = work.weight_scratch.count() >= work.spare.count();
    return input_.backward_weight_kept(stream, weights, compute,
                                       {.grad_dst = kept_ffn(pending.ffn, work),
                                        .src = src,
                                        .product_forward = {},
                                        .product_backward = {},
                                        .scratch = planned ? work.weight_scratch : work.spare,
                                        .gradients = gradients},
                                       {ops::KeptSide::kOutputs, *work.kept});
  }
  input_.backward_weight(stream, weights, compute,
                         {.grad_dst = pending.ffn,
                          .src = src,
                          .product_forward = saved.u_input,
                          .product_backward = pending.v_input,
                          .scratch = work.weight_scratch,
                          .dropout = work.dropout,
                          .gradients = gradients});
}

void DenseMlp::activate(Stream& stream, const BlockWeights& weights, const TensorView& dst,
                        const TensorView& ffn) const {
  if (activation_ == formats::ActivationKind::kSwiGlu) {
    ops::swiglu_forward(stream, dst, ffn);
  } else if (activation_ == formats::ActivationKind::kGeGluErf) {
    ops::geglu_erf_forward(stream, dst, ffn);
  } else if (gated()) {
    ops::geglu_forward(stream, dst, ffn);
  } else if (curved()) {
    ops::xielu_forward(stream, curve(weights), dst, ffn);
  } else {
    ops::activation_forward(stream, dst, ffn, plain_activation(activation_));
  }
}

void DenseMlp::backward_activate(Stream& stream, const BlockWeights& weights,
                                 const Pending& pending, const TensorView& grad_activated,
                                 const TensorView& ffn) const {
  const TensorView& grad_ffn = pending.ffn;
  const int64_t columns = grad_activated.columns();
  if (activation_ == formats::ActivationKind::kSwiGlu) {
    ops::swiglu_backward(stream, grad_ffn, grad_activated, ffn, ffn.column_range(0, columns));
  } else if (activation_ == formats::ActivationKind::kGeGluErf) {
    ops::geglu_erf_backward(stream, grad_ffn, grad_activated, ffn, ffn.column_range(0, columns));
  } else if (gated()) {
    ops::geglu_backward(stream, grad_ffn, grad_activated, ffn, ffn.column_range(0, columns));
  } else if (curved()) {
    ops::xielu_backward(stream, curve(weights), grad_ffn, grad_activated, ffn, pending.slopes);
  } else {
    ops::activation_backward(stream, grad_ffn, grad_activated, ffn, plain_activation(activation_));
  }
}

}  // namespace jige::model
