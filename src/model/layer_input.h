// LayerInput: what a layer makes of its own input, an embedding of the token (Gemma 4 E2B and E4B,
// Gemma 3n).
//
// Shapes: T tokens, D width, P columns of the input i.
//   r += norm((gelu(x Wgᵀ) · i) Wpᵀ)        [T, D] f32, x and r the residual stream behind the MLP;
// with AltUp x is the first of the streams and r each of the others.
//
// saved: x as products read it, x Wgᵀ, what the norm reads and its 1/std. pending: the gradients at
// both products and at the norm. Threads: const.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "model/norm_layer.h"
#include "model/placement.h"
#include "model/projection.h"

namespace jige::model {

// Full names of the modules, without ".weight".
struct LayerInputNames {
  std::string gate;
  std::string projection;
  std::string norm;
};

class LayerInput {
 public:
  // Appends the parameters.
  LayerInput(const formats::ModelConfig& config, const LayerInputNames& names, double output_std,
             DeviceKind device, std::vector<ParamSpec>& params);

  const Projection& gate() const { return gate_; }
  const Projection& projection() const { return projection_; }
  void plan_forward(Placement& at, DType compute, ops::WeightFormat format);
  void plan_backward(Placement& at, DType compute, ops::WeightFormat format);

  struct Saved {
    TensorView rows;    // [T, D] compute type
    TensorView gate;    // [T, P] likewise
    TensorView result;  // [T, D] likewise
    NormStats stats;    // empty where no backward follows
  };
  struct Pending {
    TensorView gate, result, after;  // [T, P], [T, D], [T, D] compute type
  };
  struct Work {
    TensorView gated, activated;  // [T, P] compute type
    TensorView rows;              // [T, D] likewise
    TensorView scratch;           // of W's products
  };
  Saved place_saved(Placement& at, int64_t token_count, DType compute, bool stats) const;
  Pending place_pending(Placement& at, int64_t token_count, DType compute) const;
  Work place_work(Placement& at, int64_t token_count, DType compute, bool training) const;

  // Adds to `targets`, [T, D] f32 each, of which rows may be one; input [T, P] f32.
  void forward(Stream& stream, const BlockWeights& weights, DType compute, const TensorView& rows,
               std::span<const TensorView> targets, const TensorView& input, const Saved& saved,
               const Work& work) const;
  struct Gradients {
    TensorView result;  // [T, D] f32: the sum of those at the targets
    TensorView rows;    // [T, D] f32, added to; may be result
    TensorView input;   // [T, P] f32, overwritten
  };
  void backward_input(Stream& stream, const BlockWeights& weights, DType compute,
                      const Gradients& gradients, const TensorView& input, const Saved& saved,
                      const Pending& pending, const Work& work) const;
  void backward_weight(Stream& stream, const BlockWeights& weights, DType compute,
                       const TensorView& input, GradientUse gradients, const Saved& saved,
                       const Pending& pending, const Work& work) const;

 private:
  // work.gated = gelu(gate) · input; work.activated holds the first factor.
  void apply_gate(Stream& stream, const TensorView& input, const Saved& saved,
                  const Work& work) const;

  int64_t width_;
  int64_t size_;  // P
  Projection gate_, projection_;
  NormLayer norm_;
};

}  // namespace jige::model
