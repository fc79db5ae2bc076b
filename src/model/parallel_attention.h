// ParallelAttention: two forms of attention that read the same rows, each with the product that
// ends in the residual stream; what they give is added. In Falcon-H1 heads with keys in a cache,
// and a layer of Mamba 2 with its state.
//
// Shapes: T tokens, D width.
//   dst = attention1(src) W1ᵀ + b1 + attention2(src) W2ᵀ + b2      [T, D] f32
//
// saved: what either side saves, its result and its product's adapters. pending: what either
// leaves, and its own copy of the gradient at dst, which its product may scale. Both sides see the
// whole context of a layer: its cache and its states. Threads: const.
#pragma once

#include <array>
#include <memory>
#include <vector>

#include "model/placed_attention.h"

namespace jige::model {

struct ParallelMemory {
  static constexpr size_t kSides = 2;
  // What F of a side leaves for X and W; of an F that saves nothing, `attention` is the workspace
  // of the side, and the second has the memory of the first.
  struct SideActivations {
    TensorView attention;  // u8
    TensorView attended;   // its result
    TensorView u;          // adapters
  };
  // What X of a side leaves for W.
  struct SideGradients {
    TensorView attention;  // u8
    TensorView output;     // [T, D] at what the product gives
    TensorView v;          // adapters
  };
  using Activations = std::array<SideActivations, kSides>;
  using Gradients = std::array<SideGradients, kSides>;
  struct Work {
    TensorView sum;        // [T, D] f32, of F: what the second side adds
    TensorView attention;  // u8, a side's own, in training
    TensorView rows;       // of X: the gradient at a side's result
    TensorView grad_src;   // [T, D] of X, the second side's
  };
};

class ParallelAttention final : public PlacedAttention<ParallelMemory> {
 public:
  struct Side {
    std::unique_ptr<Attention> attention;
    Projection output;
  };
  // REQUIRES: both products have as many outputs.
  ParallelAttention(Side first, Side second);

  bool has_output() const override { return true; }
  int64_t columns() const override { return sides_[0].output.outputs(); }
  std::vector<const Projection*> projections() const override;
  void plan_forward(Placement& at, DType compute, ops::WeightFormat format) override;
  void plan_backward(Placement& at, DType compute, ops::WeightFormat format) override;
  void pack(Stream& stream, const BlockWeights& weights, DType compute, PackFor use) const override;
  int64_t thread_scratch_bytes(int64_t token_count) const override;
  double forward_flops(double token_count, double context_mean) const override;

  void forward(const BlockContext& context, const BlockWeights& weights, const Batch& batch,
               const TensorView& src, const TensorView& dst,
               const AttentionMemory& memory) const override;
  void backward_input(const BlockContext& context, const BlockWeights& weights, const Batch& batch,
                      const TensorView& dst, const TensorView& grad_dst, const TensorView& grad_src,
                      const AttentionMemory& memory) const override;
  bool wants_source(const BlockWeights& weights) const override;
  void backward_weight(const BlockContext& context, const BlockWeights& weights, const Batch& batch,
                       const TensorView& src, const AttentionMemory& memory) const override;

 private:
  using SideActivations = ParallelMemory::SideActivations;
  using SideGradients = ParallelMemory::SideGradients;
  static constexpr size_t kSides = ParallelMemory::kSides;
  Activations place_activations(Placement& at, int64_t token_count, DType compute,
                                bool saves) const override;
  Gradients place_pending(Placement& at, int64_t token_count, DType compute) const override;
  Work place_work(Placement& at, int64_t token_count, DType compute, PackFor use) const override;
  // A side's part of a task's memory.
  static AttentionMemory side_memory(const AttentionMemory& memory, const SideActivations& views,
                                     const SideGradients& pending, const Work& work, bool saves);

  std::array<Side, kSides> sides_;
};

}  // namespace jige::model
