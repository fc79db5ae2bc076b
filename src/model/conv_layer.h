// ConvLayer: a causal convolution of each column with its parameters, as recurrent layers use it.
//
// Shapes: T tokens, C columns, K tokens that the convolution is over (ops/causal_conv.h).
// Threads: const.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "model/block.h"
#include "ops/causal_conv.h"

namespace jige::model {

struct ConvLayerOptions {
  std::string name;  // of the module, without ".weight"
  int64_t columns = 0;
  int64_t kernel = 0;
  bool bias = false;
  bool silu = false;
};

class ConvLayer {
 public:
  ConvLayer() = default;
  // Appends "<name>.weight" [C, 1, K] and, where there is one, "<name>.bias" [C].
  ConvLayer(const ConvLayerOptions& options, std::vector<ParamSpec>& params);

  // `states`: the last inputs of each sequence, or empty.
  void forward(Stream& stream, const BlockWeights& weights, const Batch& batch,
               const TensorView& dst, const TensorView& src, const TensorView& states) const;
  // grad_src, and grad_products, which W reads, from grad_dst; grad_products may be grad_dst.
  void backward_input(Stream& stream, const BlockWeights& weights, const Batch& batch,
                      const TensorView& grad_src, const TensorView& grad_products,
                      const TensorView& grad_dst, const TensorView& src) const;
  // False where it is frozen, and backward_weight() does nothing.
  bool wants_gradient(const BlockWeights& weights) const {
    return static_cast<bool>(weights.params[weight_].grad);
  }
  void backward_weight(Stream& stream, const BlockWeights& weights, const Batch& batch,
                       const TensorView& grad_products, const TensorView& src) const;

 private:
  TensorView taps(const TensorView& weight) const;  // [C, K]

  int64_t columns_ = 0;
  ops::CausalConvShape shape_;
  bool has_bias_ = false;
  size_t weight_ = 0;  // place among the parameters; its bias is the next
};

}  // namespace jige::model
