#include "model/conv_layer.h"

#include <cmath>

namespace jige::model {

// As PyTorch begins with convolutions: uniform up to the root of 1 / K. As there weight decay falls
// on kernels, which multiply as matrices do.
ConvLayer::ConvLayer(const ConvLayerOptions& options, std::vector<ParamSpec>& params)
    : shape_{.kernel = options.kernel, .silu = options.silu}, has_bias_(options.bias) {
  JoinedRows joined{.whole = options.whole + ".weight"};
  for (const ConvLayerOptions::Part& part : options.parts) {
    joined.tensors.push_back(part.name + ".weight");
    joined.rows += part.columns;
  }
  int64_t begin = 0;
  for (const ConvLayerOptions::Part& part : options.parts) {
    parts_.push_back({.begin = begin, .end = begin + part.columns, .weight = params.size()});
    params.push_back({.name = part.name + ".weight",
                      .shape = Shape{part.columns, 1, options.kernel},
                      .init = InitKind::kUniform,
                      .init_std = 1.0 / std::sqrt(static_cast<double>(options.kernel)),
                      .decay = true});
    if (!options.whole.empty()) {
      joined.first = begin;
      params.back().joined = joined;
    }
    begin += part.columns;
    if (!has_bias_) continue;
    params.push_back(
        {.name = part.name + ".bias", .shape = Shape{part.columns}, .init = InitKind::kZero});
  }
}

TensorView ConvLayer::taps(const TensorView& weight) const {
  return weight.reshaped(Shape{weight.shape[0], shape_.kernel});
}

void ConvLayer::forward(Stream& stream, const BlockWeights& weights, const Batch& batch,
                        const TensorView& dst, const TensorView& src,
                        const TensorView& states) const {
  const int64_t kept = shape_.kernel - 1;  // inputs of a column
  for (const Part& part : parts_) {
    const TensorView own =
        states ? states.column_range(kept * part.begin, kept * part.end) : TensorView{};
    ops::causal_conv_forward(stream, {.dst = part.of(dst),
                                      .src = part.of(src),
                                      .weight = taps(weights.params[part.weight].value),
                                      .bias = bias(weights, part),
                                      .states = own,
                                      .sequences = batch.sequences,
                                      .shape = shape_});
  }
}

void ConvLayer::backward_input(Stream& stream, const BlockWeights& weights, const Batch& batch,
                               const TensorView& grad_src, const TensorView& grad_products,
                               const TensorView& grad_dst, const TensorView& src) const {
  for (const Part& part : parts_) {
    ops::causal_conv_backward_input(stream, {.grad_src = part.of(grad_src),
                                             .grad_products = part.of(grad_products),
                                             .grad_dst = part.of(grad_dst),
                                             .src = part.of(src),
                                             .weight = taps(weights.params[part.weight].value),
                                             .bias = bias(weights, part),
                                             .sequences = batch.sequences,
                                             .shape = shape_});
  }
}

void ConvLayer::backward_weight(Stream& stream, const BlockWeights& weights, const Batch& batch,
                                const TensorView& grad_products, const TensorView& src) const {
  if (!wants_gradient(weights)) return;
  for (const Part& part : parts_) {
    ops::causal_conv_backward_weight(
        stream, {.grad_weight = taps(weights.params[part.weight].grad),
                 .grad_bias = has_bias_ ? weights.params[part.weight + 1].grad : TensorView{},
                 .grad_products = part.of(grad_products),
                 .src = part.of(src),
                 .sequences = batch.sequences,
                 .shape = shape_});
  }
}

}  // namespace jige::model
