// ExpertMlp: a feed-forward layer of many experts, of which each token uses a few.
//
// Shapes: T tokens, D width, E experts, k chosen for each token, R = T · k rows, F width of one.
//   l = n2 Wrᵀ                              [T, E] f32
//   chosen, w = the k highest of l, their probabilities, or by the rules that ops::Routing has
//   rows of an expert e:  g|u = n2 Wguₑᵀ,  y = (silu(g) · u) Wdₑᵀ, or with biases and the bounded
//                         gate of ops/experts.h in the place of silu; of experts without gate
//                         u = n2 Wuₑᵀ,  y = f(u) Wdₑᵀ; GELU where the family has it for silu
//   dst = Σ w y, over the chosen in ascending order; on top of s where there is a shared expert,
//         whose result every token has (dense_mlp.h), or of s σ(n2·v); v is one more row of the
//         router
// Of experts beside an MLP (experts_beside.h) the router sees other rows than n2, l is by √D, and w
// comes times a number of each expert. Where weights multiply inputs, n2 comes times w to an
// expert, and its results are added as they are; the gradient at w is then that of w n2 times n2.
// The router is kept in the compute type, whatever the format of the experts. No dropout of its
// own. The gradient at w is that of dst times y, taken as (dst' Wdₑ) · a, so y is not kept.
//
// saved: l with n2·v, the choice, rows and their places, g|u of all rows; X puts w · a in the place
// of g. pending: the gradients at g|u and l; besides, W needs the gradient at dst. Threads: const.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "formats/model_config.h"
#include "model/block.h"
#include "model/dense_mlp.h"
#include "model/expert_bank.h"
#include "model/placement.h"
#include "model/projection.h"
#include "ops/experts.h"

namespace jige::model {

// Full names of the modules, without ".weight".
struct ExpertNames {
  std::string router;
  std::string choice_bias;                    // a whole name
  bool choice_bias_as_row = false;            // files hold it as [1, E]
  std::string scales;                         // a whole name
  std::string prefix;                         // before an expert's number
  std::string gate, up, down;                 // behind it
  std::string stacked_input, stacked_output;  // of tensors that hold all experts
  bool stacked_usual = false;                 // and are what files of the family have,
  bool stacked_transposed = false;            // [E, K, N]
  std::vector<std::string> shared_input;      // of the shared expert: gate and up
  std::string shared_output;
  std::string shared_gate;  // v
};

class ExpertMlp {
 public:
  // Appends the parameters: router and its bias for the choice, gate and up of every expert, down
  // of every expert, the shared one.
  ExpertMlp(const formats::ModelConfig& config, const ExpertNames& names, double output_std,
            DeviceKind device, std::vector<ParamSpec>& params);

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
    TensorView logits;   // [T, E] f32, or [T, E + 1] with that of the shared expert's gate
    TensorView balance;  // [T] f32: X puts losses there, where the batch gives them a weight
    TensorView ffn;      // [R, 2F] compute type
    DenseMlp::Saved shared;
    TensorView tokens;  // [T, D] compute type: n2, where weights multiply it
  };
  struct Pending {
    TensorView ffn;           // [R, 2F] compute type
    TensorView grad_logits;   // as logits
    TensorView scale_slopes;  // [T, k] f32, where experts have numbers
    DenseMlp::Pending shared;
  };
  // Memory of one task. Inputs of experts and their results, one after the other, share rows.
  struct Work {
    TensorView rows;       // [R, D] compute type
    TensorView wide_rows;  // [R, D] f32, the same memory
    TensorView activated;  // [R, F] compute type; in training
    // [T, D] f32; in training. Where the router sees rows of its own, X leaves their gradient
    // there.
    TensorView grad_tokens;
    TensorView router_rows;       // [T, D] compute type: those rows
    TensorView tokens, gathered;  // [T, D] and [R, D] f32: n2 and its rows; in training
    TensorView grad_weights;      // [T, k] f32; in training
    TensorView scratch;           // of weight gradients of router and shared expert
    TensorView shared_rows;       // [T, D] f32: what the shared expert gives, or gets
    TensorView shared_activated;  // [T, F of it] compute type
  };
  Saved place_saved(Placement& at, int64_t token_count, DType compute) const;
  Pending place_pending(Placement& at, int64_t token_count, DType compute) const;
  Work place_work(Placement& at, int64_t token_count, DType compute, bool training) const;

  struct Result {
    TensorView dst;          // [T, D], f32 with an addend
    TensorView addend = {};  // [T, D] f32, not in dst's memory: added to dst; or empty
  };
  // From src [T, D], the normalised rows. Where work was not placed for training, g|u do not stay.
  void forward(Stream& stream, const BlockWeights& weights, DType compute, const Result& result,
               const TensorView& src, const Saved& saved, const Work& work) const;
  int64_t expert_count() const { return experts_.count; }
  // grad_src [T, D], compute type, from grad_dst [T, D], likewise, and of the batch's
  // balance_weight.
  void backward_input(Stream& stream, const BlockWeights& weights, DType compute,
                      const Batch& batch, const TensorView& grad_src, const TensorView& grad_dst,
                      const Saved& saved, const Pending& pending, const Work& work) const;
  bool wants_gradient(const BlockWeights& weights) const;
  void backward_weight(Stream& stream, const BlockWeights& weights, DType compute,
                       const TensorView& src, const TensorView& grad_dst, GradientUse gradients,
                       const Saved& saved, const Pending& pending, const Work& work) const;

 private:
  std::vector<const Projection*> plain_projections() const;
  // Of the logits' columns, or of their gradients': the experts' and the shared one's.
  TensorView of_experts(const TensorView& logits) const;
  TensorView of_shared(const TensorView& logits) const;
  DenseMlp::Work shared_work(const Saved& saved, const Work& work,
                             const TensorView& grad_logits) const;
  bool gated() const { return formats::has_gate(activation_); }
  bool bounded() const { return experts_.gate_limit > 0; }
  // a without g|u of all rows; false: not done.
  bool forward_gated(Stream& stream, const BlockWeights& weights, DType compute,
                     const ops::Routing& routing, const TensorView& dst,
                     const TensorView& src) const;
  // a from g|u; dst may be the columns of g.
  void activate(Stream& stream, const BlockWeights& weights, DType compute,
                const ops::Routing& routing, const TensorView& dst, const TensorView& ffn) const;
  // The gradient at g|u from that at a; a takes the place of g.
  void backward_activate(Stream& stream, const BlockWeights& weights, DType compute,
                         const ops::Routing& routing, const TensorView& grad_ffn,
                         const TensorView& grad_activated, const TensorView& ffn) const;
  // What the router sees.
  const TensorView& router_source(const TensorView& src, const Work& work) const {
    return experts_.beside_mlp ? work.router_rows : src;
  }
  // From the gradient at a, those at g|u, at inputs in work.wide_rows and at the weights: where
  // these weigh what experts give, or what they read.
  void backward_weighing(Stream& stream, const BlockWeights& weights, DType compute,
                         const ops::Routing& routing, const Saved& saved, const Pending& pending,
                         const Work& work) const;
  void backward_weighed(Stream& stream, const BlockWeights& weights, DType compute,
                        const ops::Routing& routing, const Saved& saved, const Pending& pending,
                        const Work& work) const;
  // The gradient at the router's logits, from that at the weights.
  void backward_router(Stream& stream, const Batch& batch, const ops::Routing& routing,
                       const Saved& saved, const Pending& pending, const Work& work) const;
  // With the numbers of experts, where they have any.
  ops::Routing routing(const BlockWeights& weights, const Saved& saved) const;
  void scale_logits(Stream& stream, const TensorView& logits) const;
  ops::BoundedGate gate(const BlockWeights& weights, DType compute) const;
  void add_bias_gradients(Stream& stream, const BlockWeights& weights, const TensorView& grad_dst,
                          const Saved& saved, const Pending& pending, const Work& work) const;

  int64_t width_;
  formats::ExpertConfig experts_;
  formats::ActivationKind activation_;
  Projection router_;       // with the shared expert's row
  size_t choice_bias_ = 0;  // its parameter, where there is one
  size_t scales_ = 0;       // likewise
  std::optional<DenseMlp> shared_;
  ExpertBank input_, output_;
};

}  // namespace jige::model
