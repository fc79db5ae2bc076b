// ExpertsBeside: experts beside the feed-forward layer of all tokens, which read the same rows of
// the residual stream through norms of their own (Gemma 4).
//
// Shapes: T tokens, D width.
//   dst = dense_after(a) + sparse_after(e)   [T, D]; a is what the layer of all tokens gives
//   e = experts(before(src))                 (expert_mlp.h)
//   the router sees router_norm(src); logits are by √D, weights times a number of each expert
//
// saved: a and e, what the experts save, 1/std of the norms. pending: the gradients at dst, e, and
// at what experts and router see. Threads: const.
#pragma once

#include <string>
#include <vector>

#include "model/expert_mlp.h"
#include "model/norm_layer.h"

namespace jige::model {

// Full names of the norms, without ".weight"; that of the router's is a whole name.
struct ExpertsBesideNames {
  std::string before;
  std::string router;
  std::string dense_after;
  std::string sparse_after;
};

class ExpertsBeside {
 public:
  // Appends the parameters.
  ExpertsBeside(const formats::ModelConfig& config, const ExpertsBesideNames& names,
                const ExpertNames& experts, double output_std, DeviceKind device,
                std::vector<ParamSpec>& params);

  ExpertMlp& experts() { return experts_; }
  const ExpertMlp& experts() const { return experts_; }

  struct Saved {
    TensorView dense, sparse;  // [T, D] compute type: a and e
    ExpertMlp::Saved experts;
    NormStats before, router, dense_after, sparse_after;  // empty where no backward follows
  };
  struct Pending {
    TensorView sum;      // [T, D] compute type, at dst
    TensorView sparse;   // likewise, at e
    TensorView experts;  // likewise, at what experts see
    TensorView router;   // [T, D] f32
    ExpertMlp::Pending inside;
  };
  struct Work {
    TensorView rows;  // [T, D] compute type: what experts see, and what a norm behind them gives
    ExpertMlp::Work experts;
  };
  Saved place_saved(Placement& at, int64_t token_count, DType compute, bool stats) const;
  Pending place_pending(Placement& at, int64_t token_count, DType compute) const;
  Work place_work(Placement& at, int64_t token_count, DType compute, bool training) const;

  // dst [T, D], compute type or f32, from src [T, D] f32 and saved.dense.
  void forward(Stream& stream, const BlockWeights& weights, DType compute, const TensorView& dst,
               const TensorView& src, const Saved& saved, const Work& work) const;
  // The gradients at a, which is grad_dense, and e, from pending.sum.
  void backward_norms(Stream& stream, const BlockWeights& weights, const TensorView& grad_dense,
                      const Saved& saved, const Pending& pending) const;
  // Then, from the gradient at e: adds to grad_src [T, D] f32.
  void backward_input(Stream& stream, const BlockWeights& weights, DType compute,
                      const Batch& batch, const TensorView& grad_src, const TensorView& src,
                      const Saved& saved, const Pending& pending, const Work& work) const;
  void backward_weight(Stream& stream, const BlockWeights& weights, DType compute,
                       const TensorView& src, GradientUse gradients, const Saved& saved,
                       const Pending& pending, const Work& work) const;

 private:
  int64_t width_;
  NormLayer before_, router_norm_, dense_after_, sparse_after_;
  ExpertMlp experts_;
};

}  // namespace jige::model
