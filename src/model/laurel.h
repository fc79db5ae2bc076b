// Laurel: a learned augmented residual layer (Menghani et al., 2024), what a layer has beside its
// attention (Gemma 3n).
//
// Shapes: T tokens, D width, R rank.
//   x1 = (x1 + n1 + norm((n1 Wlᵀ) Wrᵀ)) / √2      [T, D] f32, x1 the residual stream behind
//                                                  attention, n1 what attention read
// saved: both products and 1/std of the norm. pending: the gradients at the products, at the norm
// and at n1. Threads: const.
#pragma once

#include <array>
#include <string>
#include <vector>

#include "model/norm_layer.h"
#include "model/placement.h"
#include "model/projection.h"

namespace jige::model {

// Full names of the modules, without ".weight".
struct LaurelNames {
  std::string left;
  std::string right;
  std::string norm;
};

class Laurel {
 public:
  // Appends the parameters.
  Laurel(const formats::ModelConfig& config, const LaurelNames& names, double output_std,
         DeviceKind device, std::vector<ParamSpec>& params);

  std::array<const Projection*, 2> projections() const { return {&left_, &right_}; }
  void plan_forward(Placement& at, DType compute, ops::WeightFormat format);
  void plan_backward(Placement& at, DType compute, ops::WeightFormat format);

  struct Saved {
    TensorView low, high;  // [T, R] and [T, D] compute type
    NormStats stats;       // empty where no backward follows
  };
  struct Pending {
    TensorView low, high, after, rows;  // [T, R], [T, D] thrice, compute type
  };
  struct Work {
    TensorView rows;  // [T, D] compute type
    TensorView scratch;
  };
  Saved place_saved(Placement& at, int64_t token_count, DType compute, bool keeps) const;
  Pending place_pending(Placement& at, int64_t token_count, DType compute) const;
  Work place_work(Placement& at, int64_t token_count, DType compute, bool training) const;

  // x1 [T, D] f32, in place; src = n1, compute type.
  void forward(Stream& stream, const BlockWeights& weights, DType compute, const TensorView& rows,
               const TensorView& src, const Saved& saved, const Work& work) const;
  // grad_rows [T, D] f32, in place; what goes to n1 is left in pending.rows.
  void backward_input(Stream& stream, const BlockWeights& weights, DType compute,
                      const TensorView& grad_rows, const Saved& saved,
                      const Pending& pending) const;
  bool wants_source(const BlockWeights& weights) const { return left_.wants_gradient(weights); }
  // src is read where wants_source().
  void backward_weight(Stream& stream, const BlockWeights& weights, DType compute,
                       const TensorView& src, GradientUse gradients, const Saved& saved,
                       const Pending& pending, const Work& work) const;

 private:
  int64_t width_;
  int64_t rank_;
  Projection left_, right_;
  NormLayer norm_;
};

}  // namespace jige::model
