// ShortConv: the gated short convolution, which stands in place of attention in some layers of
// LFM2.
//
// Shapes: T tokens, D width.
//   b|c|x = src Winᵀ + bias             [T, 3D]
//   p = b · x                           [T, D]
//   dst = c · conv(p)                   ops/causal_conv.h, without an activation
//
// Inference keeps the last inputs of the convolution of every sequence (SequenceStates), and no
// matrices. Training begins with none and makes p and conv(p) anew where they are needed.
// saved: b|c|x. pending: the gradients at b|c|x and at conv(p). Threads: const.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "model/conv_layer.h"
#include "model/recurrent_attention.h"

namespace jige::model {

// Full names of the modules, without ".weight".
struct ShortConvNames {
  std::string in;
  std::string conv;
};

struct ShortConvMemory {
  struct Activations {
    TensorView in;
    TensorView u;  // adapters
  };
  struct Gradients {
    TensorView in, conv;
    TensorView v;  // adapters
  };
  struct Work {
    TensorView products;             // p
    TensorView conv, grad_products;  // of X
  };
};

class ShortConv final : public RecurrentAttention<ShortConvMemory> {
 public:
  // Appends the parameters.
  ShortConv(const formats::ModelConfig& config, const ShortConvNames& names,
            const std::optional<formats::LoraConfig>& lora, DeviceKind device,
            std::vector<ParamSpec>& params);

  int64_t columns() const override { return width_; }
  int64_t thread_scratch_bytes(int64_t /*token_count*/) const override { return 0; }
  double forward_flops(double token_count, double context_mean) const override;

  void forward(const BlockContext& context, const BlockWeights& weights, const Batch& batch,
               const TensorView& src, const TensorView& dst,
               const AttentionMemory& memory) const override;
  void backward_input(const BlockContext& context, const BlockWeights& weights, const Batch& batch,
                      const TensorView& dst, const TensorView& grad_dst, const TensorView& grad_src,
                      const AttentionMemory& memory) const override;
  void backward_weight(const BlockContext& context, const BlockWeights& weights, const Batch& batch,
                       const TensorView& src, const AttentionMemory& memory) const override;

 private:
  Activations place_activations(Placement& at, int64_t token_count, DType compute,
                                bool saves) const override;
  Gradients place_pending(Placement& at, int64_t token_count, DType compute) const override;
  Work place_work(Placement& at, int64_t token_count, DType compute, PackFor use) const override;

  // Columns of b|c|x or its gradient.
  TensorView gate_before(const TensorView& in) const { return in.column_range(0, width_); }
  TensorView gate_behind(const TensorView& in) const { return in.column_range(width_, 2 * width_); }
  TensorView values_of(const TensorView& in) const {
    return in.column_range(2 * width_, 3 * width_);
  }
  // p.
  void multiply(Stream& stream, const TensorView& in, const TensorView& products) const;

  int64_t width_;
  int64_t kernel_;
  ConvLayer conv_;
};

}  // namespace jige::model
