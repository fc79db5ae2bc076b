// Mamba1: the state-space layer of the first Mamba (Gu and Dao, 2023), which stands in place of
// attention. Each of its channels keeps a few numbers of what it has seen, which do not grow with
// the text.
//
// Shapes: T tokens, D width, C channels of N numbers each, R the rank of steps.
//   u|z = src Winᵀ + bias     [T, 2 C]
//   x = silu(conv(u))         [T, C], ops/causal_conv.h
//   t|B|C = x Wxᵀ             [T, R + 2 N], in some families each of the three normed
//   a = t Wtᵀ                 [T, C]
//   o = scan(x, a, B, C)      [T, C], ops/selective_scan.h; its bias is that of Wt
//   dst = o · silu(z)
// Formulas: as Falcon Mamba (norms without weights), Jamba (norms with weights) and Mamba itself
// (no norms) have them.
//
// Inference keeps the last inputs of the convolution and the numbers of every sequence
// (SequenceStates). Training begins with none and makes x and what norms give anew where they are
// needed.
// saved: u|z, t|B|C, a, o, and 1/std of the norms. pending: the gradients at u|z, at what the
// convolution gives, at t|B|C and at what the norms give, at a and at o. Threads: const.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <vector>

#include "model/conv_layer.h"
#include "model/norm_layer.h"
#include "model/placed_attention.h"
#include "ops/selective_scan.h"

namespace jige::model {

// Full names of the modules, without ".weight"; those of parameters without suffix.
struct Mamba1Names {
  std::string in;
  std::string conv;
  std::string parts;                      // t|B|C
  std::string steps;                      // with a bias
  std::string log_scale;                  // parameter
  std::string skip;                       // parameter
  std::array<std::string, 3> norms = {};  // of t, B and C; empty where they have no weights
};

struct Mamba1Memory {
  struct Activations {
    TensorView in, parts, a, o;
    std::array<NormStats, 3> stats;
    TensorView u_in, u_parts;  // adapters
  };
  struct Gradients {
    TensorView in, conv, parts, normed, a, o;
    TensorView v_in, v_parts;  // adapters
  };
  struct Work {
    TensorView x;                   // [T, C] what the convolution gives
    TensorView normed;              // [T, R + 2 N] what norms make of t|B|C
    TensorView grad_x, from_parts;  // of X
    TensorView sums;                // of X, of the scan
  };
};

class Mamba1 final : public PlacedAttention<Mamba1Memory> {
 public:
  // Appends the parameters.
  Mamba1(const formats::ModelConfig& config, const Mamba1Names& names,
         const std::optional<formats::LoraConfig>& lora, DeviceKind device,
         std::vector<ParamSpec>& params);

  int64_t columns() const override { return config_.columns; }
  std::vector<const Projection*> projections() const override { return {&in_, &parts_, &steps_}; }
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
  bool wants_source(const BlockWeights& weights) const override {
    return in_.wants_gradient(weights);
  }
  void backward_weight(const BlockContext& context, const BlockWeights& weights, const Batch& batch,
                       const TensorView& src, const AttentionMemory& memory) const override;

 private:
  Activations place_activations(Placement& at, int64_t token_count, DType compute,
                                bool saves) const override;
  Gradients place_pending(Placement& at, int64_t token_count, DType compute) const override;
  Work place_work(Placement& at, int64_t token_count, DType compute, PackFor use) const override;

  bool has_norms() const { return config_.norms != formats::StepNorms::kNone; }
  int64_t part_columns() const { return config_.step_rank + 2 * config_.state_dim; }
  // Columns of u|z or its gradient.
  TensorView conv_of(const TensorView& in) const { return in.column_range(0, config_.columns); }
  TensorView gate_of(const TensorView& in) const {
    return in.column_range(config_.columns, 2 * config_.columns);
  }
  // Columns of t, B or C, or of their gradients.
  TensorView part_of(const TensorView& parts, size_t part) const {
    const int64_t rank = config_.step_rank;
    const int64_t begin = part == 0 ? 0 : rank + (part == 1 ? 0 : config_.state_dim);
    return parts.column_range(begin, part == 0 ? rank : begin + config_.state_dim);
  }
  // t|B|C as the scan has them.
  const TensorView& scanned(const Activations& views, const Work& work) const {
    return has_norms() ? work.normed : views.parts;
  }
  void forward_norms(Stream& stream, const BlockWeights& weights, const Activations& views,
                     const Work& work, bool keeps_stats) const;
  ops::SelectiveScan scan(const BlockWeights& weights, const Batch& batch, const Activations& views,
                          const Work& work) const;
  // What X and W make anew: x and t|B|C.
  void prepare(const BlockContext& context, const BlockWeights& weights, const Batch& batch,
               const Activations& saved, const Work& work) const;
  // The gradients at x from that at o: through the scan, and through t|B|C.
  void backward_scan(const BlockContext& context, const BlockWeights& weights, const Batch& batch,
                     const Activations& saved, const Gradients& pending, const Work& work,
                     const AttentionMemory& memory) const;

  formats::Mamba1Config config_;
  Projection in_, parts_, steps_;
  ConvLayer conv_;
  std::array<NormLayer, 3> norms_;
  size_t step_bias_ = 0;  // places among the parameters
  size_t log_scale_ = 0;
  size_t skip_ = 0;
};

}  // namespace jige::model
