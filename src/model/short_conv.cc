#include "model/short_conv.h"

#include "ops/gate.h"

namespace jige::model {

ShortConv::ShortConv(const formats::ModelConfig& config, const ShortConvNames& names,
                     const std::optional<formats::LoraConfig>& lora, DeviceKind device,
                     std::vector<ParamSpec>& params)
    : width_(config.hidden_size), kernel_(config.short_conv.kernel) {
  const bool has_bias = config.short_conv.bias;
  in_ = Projection({.parts = {{names.in, 3 * width_}},
                    .inputs = width_,
                    .bias = has_bias,
                    .lora = lora,
                    .device = device},
                   params);
  conv_ = ConvLayer({.parts = {{names.conv, width_}}, .kernel = kernel_, .bias = has_bias}, params);
}

ShortConv::Activations ShortConv::place_activations(Placement& at, int64_t token_count,
                                                    DType compute, bool /*saves*/) const {
  Activations views;
  views.in = at.take(compute, Shape{token_count, 3 * width_});
  views.u = in_.place_product(at, token_count, compute);
  return views;
}

ShortConv::Gradients ShortConv::place_pending(Placement& at, int64_t token_count,
                                              DType compute) const {
  Gradients pending;
  pending.in = at.take(compute, Shape{token_count, 3 * width_});
  pending.conv = at.take(compute, Shape{token_count, width_});
  pending.v = in_.place_product(at, token_count, compute);
  return pending;
}

ShortConv::Work ShortConv::place_work(Placement& at, int64_t token_count, DType compute,
                                      PackFor use) const {
  Work work;
  work.products = at.take(compute, Shape{token_count, width_});
  if (use == PackFor::kInference) return work;
  work.conv = at.take(compute, Shape{token_count, width_});
  work.grad_products = at.take(compute, Shape{token_count, width_});
  return work;
}

// A multiply-add for every tap, and two products.
double ShortConv::forward_flops(double token_count, double /*context_mean*/) const {
  return token_count * static_cast<double>(width_ * (2 * kernel_ + 2));
}

void ShortConv::multiply(Stream& stream, const TensorView& in, const TensorView& products) const {
  ops::gate_forward(stream, products, values_of(in), gate_before(in), ops::GateKind::kPlain);
}

void ShortConv::forward(const BlockContext& context, const BlockWeights& weights,
                        const Batch& batch, const TensorView& src, const TensorView& dst,
                        const AttentionMemory& memory) const {
  Stream& stream = context.stream;
  const auto [views, work] = place_forward(memory, batch.token_count(), context.compute);

  project(context, weights, src, views, memory);
  multiply(stream, views.in, work.products);
  conv_.forward(stream, weights, batch, dst, work.products, context.states.inputs);
  ops::gate_forward(stream, dst, dst, gate_behind(views.in), ops::GateKind::kPlain);
}

void ShortConv::backward_input(const BlockContext& context, const BlockWeights& weights,
                               const Batch& batch, const TensorView& /*dst*/,
                               const TensorView& grad_dst, const TensorView& grad_src,
                               const AttentionMemory& memory) const {
  Stream& stream = context.stream;
  const auto [saved, pending, work] = place_backward(memory, batch.token_count(), context.compute);

  multiply(stream, saved.in, work.products);
  conv_.forward(stream, weights, batch, work.conv, work.products, {});
  ops::gate_backward(stream, pending.conv, gate_behind(pending.in), grad_dst, work.conv,
                     gate_behind(saved.in), ops::GateKind::kPlain);
  conv_.backward_input(stream, weights, batch, work.grad_products, pending.conv, pending.conv,
                       work.products);
  ops::gate_backward(stream, values_of(pending.in), gate_before(pending.in), work.grad_products,
                     values_of(saved.in), gate_before(saved.in), ops::GateKind::kPlain);
  project_backward_input(context, weights, grad_src, pending, memory);
}

void ShortConv::backward_weight(const BlockContext& context, const BlockWeights& weights,
                                const Batch& batch, const TensorView& src,
                                const AttentionMemory& memory) const {
  Stream& stream = context.stream;
  const auto [saved, pending, work] = place_backward(memory, batch.token_count(), context.compute);

  if (conv_.wants_gradient(weights)) {
    multiply(stream, saved.in, work.products);
    conv_.backward_weight(stream, weights, batch, pending.conv, work.products);
  }
  project_backward_weight(context, weights, src, saved, pending, memory);
}

}  // namespace jige::model
