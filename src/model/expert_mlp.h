// ExpertMlp: a feed-forward layer of many experts, of which each token uses a few.
//
// Shapes: T tokens, D width, E experts, k chosen for each token, R = T · k rows, F width of one.
//   l = n2 Wrᵀ                              [T, E] f32
//   chosen, w = the k highest of l, their probabilities    (ops/experts.h)
//   rows of an expert e:  g|u = n2 Wguₑᵀ,  y = (silu(g) · u) Wdₑᵀ, or with biases and the bounded
//                         gate of ops/experts.h in the place of silu
//   dst = Σ w y, over the chosen in ascending order
// The router is kept in the compute type, whatever the format of the experts. No dropout of its
// own. The gradient at w is that of dst times y, taken as (dst' Wdₑ) · a, so y is not kept.
//
// saved: l, the choice, rows and their places, g|u of all rows; X puts w · a in the place of g.
// pending: the gradients at g|u and l; besides, W needs the gradient at dst.
// Threads: const.
#pragma once

#include <string>
#include <vector>

#include "formats/model_config.h"
#include "model/block.h"
#include "model/expert_bank.h"
#include "model/placement.h"
#include "model/projection.h"
#include "ops/experts.h"

namespace jige::model {

// Full names of the modules, without ".weight".
struct ExpertNames {
  std::string router;
  std::string prefix;                         // before an expert's number
  std::string gate, up, down;                 // behind it
  std::string stacked_input, stacked_output;  // of tensors that hold all experts
};

class ExpertMlp {
 public:
  // Appends the parameters: router, gate and up of every expert, down of every expert.
  ExpertMlp(const formats::ModelConfig& config, const ExpertNames& names, double output_std,
            std::vector<ParamSpec>& params);

  void plan_forward(Placement& at, DType compute, ops::WeightFormat format);
  void plan_backward(Placement& at, DType compute, ops::WeightFormat format);
  void pack(Stream& stream, const BlockWeights& weights, DType compute, PackFor use) const;
  void list_packs(const BlockWeights& weights, size_t param, DType compute, PackFor use,
                  std::vector<ops::PackPart>& packs) const;
  int64_t strip_bytes(DType compute) const;
  int64_t thread_scratch_bytes(int64_t token_count, DType compute, int threads,
                               bool frozen_base) const;
  double forward_flops(double token_count) const;

  struct Saved {
    ops::Routing routing;
    TensorView ffn;  // [R, 2F] compute type
  };
  struct Pending {
    TensorView ffn;          // [R, 2F] compute type
    TensorView grad_logits;  // [T, E] f32
  };
  // Memory of one task. Inputs of experts and their results, one after the other, share rows.
  struct Work {
    TensorView rows;          // [R, D] compute type
    TensorView wide_rows;     // [R, D] f32, the same memory
    TensorView activated;     // [R, F] compute type; in training
    TensorView grad_tokens;   // [T, D] f32; in training
    TensorView grad_weights;  // [T, k] f32; in training
    TensorView scratch;       // of the router's weight gradient
  };
  Saved place_saved(Placement& at, int64_t token_count, DType compute) const;
  Pending place_pending(Placement& at, int64_t token_count, DType compute) const;
  Work place_work(Placement& at, int64_t token_count, DType compute, bool training) const;

  // dst [T, D] f32 from src [T, D], the normalised rows. Where work was not placed for training,
  // g|u do not stay.
  void forward(Stream& stream, const BlockWeights& weights, DType compute, const TensorView& dst,
               const TensorView& src, const Saved& saved, const Work& work) const;
  // grad_src [T, D], compute type, from grad_dst [T, D], likewise.
  void backward_input(Stream& stream, const BlockWeights& weights, DType compute,
                      const TensorView& grad_src, const TensorView& grad_dst, const Saved& saved,
                      const Pending& pending, const Work& work) const;
  bool wants_gradient(const BlockWeights& weights) const;
  void backward_weight(Stream& stream, const BlockWeights& weights, DType compute,
                       const TensorView& src, const TensorView& grad_dst, GradientUse gradients,
                       const Saved& saved, const Pending& pending, const Work& work) const;

 private:
  bool bounded() const { return experts_.gate_limit > 0; }
  ops::BoundedGate gate(const BlockWeights& weights, DType compute) const;
  void add_bias_gradients(Stream& stream, const BlockWeights& weights, const TensorView& grad_dst,
                          const Saved& saved, const Pending& pending, const Work& work) const;

  int64_t width_;
  formats::ExpertConfig experts_;
  Projection router_;
  ExpertBank input_, output_;
};

}  // namespace jige::model
