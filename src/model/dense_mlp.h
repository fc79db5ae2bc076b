// DenseMlp: a feed-forward layer of one pair of products.
//
// Shapes: T tokens, D width, F feed-forward width.
//   a = act(g) · u, g|u = n2 Wguᵀ + b   act silu or gelu; or a = act(n2 Wuᵀ + b), relu as well, or
//                                       xIELU with numbers of its own (ops/xielu.h)
//   dst = a Wdᵀ + b
// Some models multiply g with a number before act, and what comes of Wd with another; in some g is
// cut first: max(g - c, 0), c so many deviations above the mean of the token's (ops/row_spread.h).
// Rows may have a gate each, by a logit of the token: then a comes times σ(logit), before Wd.
// Where blocks of the hidden width are dropped (step_dropout.h), rows have K of its F columns,
// their own: g|u is [T, 2K] and a [T, K], both in the memory of whole ones, and a comes times F /
// K.
//
// saved: g|u or u, and g as it was before it was cut; X puts a in the place of g, times the row's
// gate where there is one. Without gate a is computed anew. pending: the gradient at g|u or u, and
// what tokens add to those of xIELU's numbers; besides, W needs the gradient at dst. Threads:
// const.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "formats/model_config.h"
#include "model/block.h"
#include "model/placement.h"
#include "model/projection.h"
#include "ops/elementwise.h"
#include "ops/kept_linear.h"
#include "ops/xielu.h"

namespace jige::model {

// Of an activation without gate.
ops::Activation plain_activation(formats::ActivationKind activation);

struct DenseMlpOptions {
  std::vector<std::string> input;  // full names, without ".weight": gate and up, or one module
  std::string output;
  std::string curve;  // before the names of xIELU's numbers, where it is the activation
  int64_t size = 0;   // F
  double output_std = 0.02;
  bool gate_last = false;      // a module of both has the gate behind what it gates
  double sparsity = 0;         // the share of g that is cut away, were it normal; 0: g is not cut
  bool transposed = false;     // files hold matrices as [in, out]
  double activated_scale = 1;  // what the second product reads is multiplied with it
  bool bounded = false;        // products are (ProjectionOptions::bounded)
  std::optional<formats::LoraConfig> lora;
  DeviceKind device = DeviceKind::kCpu;
};

class DenseMlp {
 public:
  // Appends the parameters.
  DenseMlp(const formats::ModelConfig& config, const DenseMlpOptions& options,
           std::vector<ParamSpec>& params);

  // For what all projections of a block share: packed forms, scratch.
  const Projection& input() const { return input_; }
  const Projection& output() const { return output_; }
  void plan_forward(Placement& at, DType compute, ops::WeightFormat format);
  void plan_backward(Placement& at, DType compute, ops::WeightFormat format);

  struct Saved {
    TensorView ffn;                // [T, 2F] or [T, F], compute type
    TensorView gate;               // [T, F]: g before it was cut, where a backward follows
    TensorView u_input, u_output;  // adapters
  };
  struct Pending {
    TensorView ffn;                // as in Saved
    TensorView v_input, v_output;  // adapters
    TensorView slopes;             // [T, 2] f32: of xIELU's numbers
  };
  // Memory of one task, which the block's other parts use before and after.
  struct Work {
    TensorView activated;  // [T, F] compute type; F may have src there, and loses it
    TensorView adapter_scratch;
    TensorView weight_scratch;               // of W's products
    ops::Dropout dropout = {};               // of adapters (projection.h)
    TensorView row_logits;                   // [T, 1] f32, of rows' gates; or empty
    TensorView grad_row_logits;              // likewise; X writes them
    const StepAdapters* adapters = nullptr;  // as in BlockContext
    bool saves = true;  // F's saved.ffn is wanted again; else F leaves there what it likes
    // [T, D] f32, not in dst's memory: F adds it to dst, which is f32. Or empty.
    TensorView addend;
    const ops::NormForward* norm = nullptr;  // what makes F's src and is still to be done, or null
    // The columns of the hidden width that rows keep; null: all. REQUIRES: may_keep(), and no
    // logits, adapters of a step, or rows of W alone.
    const ops::KeptColumns* kept = nullptr;
    TensorView spare = {};  // u8: with these, memory for W of the input
  };
  // Whether blocks of its hidden width can be dropped.
  bool may_keep() const {
    return !sparse() && !curved() && input_.may_keep() && output_.may_keep();
  }
  int64_t size() const { return size_; }  // F
  Saved place_saved(Placement& at, int64_t token_count, DType compute, bool keeps_gate) const;
  Pending place_pending(Placement& at, int64_t token_count, DType compute) const;

  // dst [T, D], compute type or f32, from src [T, D], compute type.
  void forward(Stream& stream, const BlockWeights& weights, DType compute, const TensorView& dst,
               const TensorView& src, const Saved& saved, const Work& work) const;
  // grad_src [T, D], compute type or f32, from grad_dst [T, D], compute type. Gates of rows are for
  // an activation with a gate.
  void backward_input(Stream& stream, const BlockWeights& weights, DType compute,
                      const TensorView& grad_src, const TensorView& grad_dst, const Saved& saved,
                      const Pending& pending, const Work& work) const;
  // W of the output, then of the input, which alone reads src: its rows may be those of a.
  void backward_output_weight(Stream& stream, const BlockWeights& weights, DType compute,
                              const TensorView& grad_dst, GradientUse gradients, const Saved& saved,
                              const Pending& pending, const Work& work) const;
  void backward_input_weight(Stream& stream, const BlockWeights& weights, DType compute,
                             const TensorView& src, GradientUse gradients, const Saved& saved,
                             const Pending& pending, const Work& work) const;

 private:
  bool gated() const { return formats::has_gate(activation_); }
  int64_t ffn_columns() const { return gated() ? 2 * size_ : size_; }
  bool sparse() const { return cut_.has_value(); }
  bool curved() const { return activation_ == formats::ActivationKind::kXielu; }
  ops::Xielu curve(const BlockWeights& weights) const;
  void forward_kept(Stream& stream, const BlockWeights& weights, DType compute,
                    const TensorView& dst, const TensorView& src, const Saved& saved,
                    const Work& work) const;
  void backward_input_kept(Stream& stream, const BlockWeights& weights, DType compute,
                           const TensorView& grad_src, const TensorView& grad_dst,
                           const Saved& saved, const Pending& pending, const Work& work) const;
  void backward_output_weight_kept(Stream& stream, const BlockWeights& weights, DType compute,
                                   const TensorView& grad_dst, GradientUse gradients,
                                   const Saved& saved, const Work& work) const;
  // The kept columns of g|u or u, in the memory of all.
  TensorView kept_ffn(const TensorView& ffn, const Work& work) const {
    return first_columns(ffn, (gated() ? 2 : 1) * work.kept->kept);
  }
  // a from src, and where it is.
  TensorView forward_input(Stream& stream, const BlockWeights& weights, DType compute,
                           const TensorView& src, const Saved& saved, const Work& work) const;
  void activate(Stream& stream, const BlockWeights& weights, const TensorView& dst,
                const TensorView& ffn) const;
  // The gradient of g|u or u from that of a. W wants a again, and nobody the gate: it takes its
  // place.
  void backward_activate(Stream& stream, const BlockWeights& weights, const Pending& pending,
                         const TensorView& grad_activated, const TensorView& ffn) const;

  int64_t size_;
  formats::ActivationKind activation_;
  std::optional<double> cut_;  // deviations above the mean
  Projection input_, output_;
  size_t curve_ = 0;  // xIELU's first number: alpha_p, alpha_n, beta, eps
};

}  // namespace jige::model
