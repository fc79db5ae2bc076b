// RecurrentAttention: what the forms of recurrent layers have in common: one projection makes all
// that the form reads of its source.
//
// Memory is as in placed_attention.h; its Activations and Gradients have
//   in     what the projection gives, or the gradient at it
//   u, v   the projection's adapters, forward and backward
// The form gives in_ its options in its constructor.
// Threads: const.
#pragma once

#include <vector>

#include "model/placed_attention.h"

namespace jige::model {

template <typename Memory>
class RecurrentAttention : public PlacedAttention<Memory> {
 public:
  using typename PlacedAttention<Memory>::Activations;
  using typename PlacedAttention<Memory>::Gradients;

  std::vector<const Projection*> projections() const final { return {&in_}; }
  void plan_forward(Placement& at, DType compute, ops::WeightFormat format) final {
    in_.plan_forward(at, compute, format);
  }
  void plan_backward(Placement& at, DType compute, ops::WeightFormat format) final {
    in_.plan_backward(at, compute, format);
  }
  void pack(Stream& stream, const BlockWeights& weights, DType compute, PackFor use) const final {
    in_.pack(stream, weights, compute, use);
  }
  bool wants_source(const BlockWeights& weights) const final { return in_.wants_gradient(weights); }

 protected:
  void project(const BlockContext& context, const BlockWeights& weights, const TensorView& src,
               const Activations& saved, const AttentionMemory& memory) const {
    in_.forward(context.stream, weights, context.compute,
                {.dst = saved.in,
                 .src = src,
                 .product = saved.u,
                 .scratch = memory.adapter_scratch,
                 .dropout = memory.dropout,
                 .adapters = context.adapters});
  }
  // grad_src from pending.in.
  void project_backward_input(const BlockContext& context, const BlockWeights& weights,
                              const TensorView& grad_src, const Gradients& pending,
                              const AttentionMemory& memory) const {
    in_.backward_input(context.stream, weights, context.compute,
                       {.grad_src = grad_src,
                        .grad_dst = pending.in,
                        .product = pending.v,
                        .scratch = memory.adapter_scratch,
                        .dropout = memory.dropout});
  }
  // Nothing where the projection does not learn.
  void project_backward_weight(const BlockContext& context, const BlockWeights& weights,
                               const TensorView& src, const Activations& saved,
                               const Gradients& pending, const AttentionMemory& memory) const {
    if (!wants_source(weights)) return;
    in_.backward_weight(context.stream, weights, context.compute,
                        {.grad_dst = pending.in,
                         .src = src,
                         .product_forward = saved.u,
                         .product_backward = pending.v,
                         .scratch = memory.weight_scratch,
                         .dropout = memory.dropout,
                         .gradients = context.gradients});
  }

  Projection in_;
};

}  // namespace jige::model
