// ConvLayer: a causal convolution of each column with its parameters, as recurrent layers use it.
// Columns may come in parts, which files have parameters of each for.
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
  struct Part {
    std::string name;  // of the module, without ".weight"
    int64_t columns = 0;
  };
  std::vector<Part> parts;
  std::string whole = {};  // of the module that files may have all parts in
  int64_t kernel = 0;
  bool bias = false;
  bool silu = false;
};

class ConvLayer {
 public:
  ConvLayer() = default;
  // Appends of each part "<name>.weight" [C, 1, K] and, where there is one, "<name>.bias" [C].
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
    return static_cast<bool>(weights.params[parts_[0].weight].grad);
  }
  void backward_weight(Stream& stream, const BlockWeights& weights, const Batch& batch,
                       const TensorView& grad_products, const TensorView& src) const;

 private:
  struct Part {
    int64_t begin = 0, end = 0;  // columns
    size_t weight = 0;           // place among the parameters; its bias is the next
    TensorView of(const TensorView& rows) const { return rows.column_range(begin, end); }
  };
  TensorView taps(const TensorView& weight) const;  // [C, K]
  TensorView bias(const BlockWeights& weights, const Part& part) const {
    return has_bias_ ? weights.params[part.weight + 1].value : TensorView{};
  }

  std::vector<Part> parts_;
  ops::CausalConvShape shape_;
  bool has_bias_ = false;
};

}  // namespace jige::model
