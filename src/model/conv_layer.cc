#include "model/conv_layer.h"

#include <cmath>

namespace jige::model {

// As PyTorch begins with convolutions: uniform up to the root of 1 / K.
ConvLayer::ConvLayer(const ConvLayerOptions& options, std::vector<ParamSpec>& params)
    : columns_(options.columns),
      shape_{.kernel = options.kernel, .silu = options.silu},
      has_bias_(options.bias),
      weight_(params.size()) {
  params.push_back({.name = options.name + ".weight",
                    .shape = Shape{columns_, 1, options.kernel},
                    .init = InitKind::kUniform,
                    .init_std = 1.0 / std::sqrt(static_cast<double>(options.kernel))});
  if (!has_bias_) return;
  params.push_back(
      {.name = options.name + ".bias", .shape = Shape{columns_}, .init = InitKind::kZero});
}

TensorView ConvLayer::taps(const TensorView& weight) const {
  return weight.reshaped(Shape{columns_, shape_.kernel});
}

void ConvLayer::forward(Stream& stream, const BlockWeights& weights, const Batch& batch,
                        const TensorView& dst, const TensorView& src,
                        const TensorView& states) const {
  ops::causal_conv_forward(stream,
                           {.dst = dst,
                            .src = src,
                            .weight = taps(weights.params[weight_].value),
                            .bias = has_bias_ ? weights.params[weight_ + 1].value : TensorView{},
                            .states = states,
                            .sequences = batch.sequences,
                            .shape = shape_});
}

void ConvLayer::backward_input(Stream& stream, const BlockWeights& weights, const Batch& batch,
                               const TensorView& grad_src, const TensorView& grad_products,
                               const TensorView& grad_dst, const TensorView& src) const {
  ops::causal_conv_backward_input(
      stream, {.grad_src = grad_src,
               .grad_products = grad_products,
               .grad_dst = grad_dst,
               .src = src,
               .weight = taps(weights.params[weight_].value),
               .bias = has_bias_ ? weights.params[weight_ + 1].value : TensorView{},
               .sequences = batch.sequences,
               .shape = shape_});
}

void ConvLayer::backward_weight(Stream& stream, const BlockWeights& weights, const Batch& batch,
                                const TensorView& grad_products, const TensorView& src) const {
  if (!wants_gradient(weights)) return;
  ops::causal_conv_backward_weight(
      stream, {.grad_weight = taps(weights.params[weight_].grad),
               .grad_bias = has_bias_ ? weights.params[weight_ + 1].grad : TensorView{},
               .grad_products = grad_products,
               .src = src,
               .sequences = batch.sequences,
               .shape = shape_});
}

}  // namespace jige::model
