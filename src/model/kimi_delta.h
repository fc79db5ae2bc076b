// KimiDelta: Kimi Delta Attention, the delta net of Kimi Linear, which stands in place of attention
// in most of its layers. As in other delta nets (delta_attention.h) each head keeps a matrix of
// what it has seen, but every column of its keys fades by a decay of its own; decays and gates pass
// through a few columns first.
//
// Shapes: T tokens, D width, H heads of d columns; I = H·d, C = 3 I.
//   u|b|f|g = src Winᵀ                       [T, C + H + 2 d]
//   q|k|v = silu(conv(u))                    ops/causal_conv.h
//   a = f Wfᵀ, z = g Wgᵀ                     [T, I] each
//   log_decay, rate = gates(a, b)            ops/delta_gates.h, decays by key
//   o = delta rule(q, k, v, log_decay, rate) ops/delta_rule.h
//   dst = norm(o) · sigmoid(z)               each head by itself
// Formulas: Kimi Team, Kimi Linear: An Expressive, Efficient Attention Architecture, 2025.
//
// Inference keeps the last inputs of the convolution and the matrices of every sequence
// (SequenceStates). Training begins with none and makes q|k|v anew where they are needed.
// saved: u|b|f|g, a, z, o, and 1/std of the norms. pending: the gradients at u|b|f|g, at a and z,
// at what the convolution gives and at what the norm gives, and slopes of decays. Threads: const.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "model/conv_layer.h"
#include "model/norm_layer.h"
#include "model/placed_attention.h"
#include "ops/delta_gates.h"
#include "ops/delta_rule.h"

namespace jige::model {

// Full names of the modules, without ".weight"; those of parameters without suffix.
struct KimiDeltaNames {
  std::vector<std::string> qkv;
  std::string rate;
  std::string decay_down, decay_up;
  std::string gate_down, gate_up;
  std::vector<std::string> conv;
  std::string conv_whole;  // where files may have three convolutions in one
  std::string log_scale;   // parameter
  std::string decay_bias;  // parameter
  std::string norm;
};

struct KimiDeltaMemory {
  struct Activations {
    TensorView in, a, z, o;
    NormStats stats;
    TensorView u_in, u_decay, u_gate;  // adapters
  };
  struct Gradients {
    TensorView in, a, z, conv, normed;
    TensorView slopes_scale;           // [T, H] f32
    TensorView slopes_bias;            // [T, I] f32
    TensorView v_in, v_decay, v_gate;  // adapters
  };
  struct Work {
    TensorView qkv;                        // [T, C] what the convolution gives
    TensorView log_decay;                  // [T, I] f32
    TensorView rate;                       // [T, H] f32
    TensorView normed, grad_o, grad_qkv;   // of X
    TensorView grad_log_decay, grad_rate;  // of X
  };
};

class KimiDelta final : public PlacedAttention<KimiDeltaMemory> {
 public:
  // Appends the parameters.
  KimiDelta(const formats::ModelConfig& config, const KimiDeltaNames& names,
            const std::optional<formats::LoraConfig>& lora, DeviceKind device,
            std::vector<ParamSpec>& params);

  int64_t columns() const override { return inner(); }
  std::vector<const Projection*> projections() const override { return {&in_, &decay_, &gate_}; }
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

  int64_t heads() const { return shape_.value_heads; }
  int64_t head_dim() const { return shape_.key_dim; }
  int64_t inner() const { return heads() * head_dim(); }
  int64_t in_columns() const { return 3 * inner() + heads() + 2 * head_dim(); }
  // Columns of u|b|f|g or its gradient.
  TensorView conv_of(const TensorView& in) const { return in.column_range(0, 3 * inner()); }
  TensorView rate_of(const TensorView& in) const {
    return in.column_range(3 * inner(), 3 * inner() + heads());
  }
  TensorView decay_of(const TensorView& in) const {
    return in.column_range(in_columns() - 2 * head_dim(), in_columns() - head_dim());
  }
  TensorView gate_of(const TensorView& in) const {
    return in.column_range(in_columns() - head_dim(), in_columns());
  }
  // Queries, keys or values of q|k|v or its gradient.
  TensorView part_of(const TensorView& qkv, int64_t part) const {
    return qkv.column_range(part * inner(), (part + 1) * inner());
  }
  ops::DeltaGates gates(const BlockWeights& weights, const Activations& views,
                        const Work& work) const;
  ops::DeltaRuleForward rule(const Batch& batch, const TensorView& dst, const Work& work) const;
  // q|k|v, decays and rates.
  void prepare(const BlockContext& context, const BlockWeights& weights, const Batch& batch,
               const Activations& views, const Work& work) const;
  // From the gradient at o to those at a and at u|b of u|b|f|g.
  void backward_rule(const BlockContext& context, const BlockWeights& weights, const Batch& batch,
                     const Activations& saved, const Gradients& pending, const Work& work) const;

  ops::DeltaRuleShape shape_;
  Projection in_, decay_, gate_;
  ConvLayer conv_;
  size_t log_scale_ = 0;  // places among the parameters
  size_t decay_bias_ = 0;
  NormLayer norm_;
};

}  // namespace jige::model
