// Mamba2: the state-space layer of Mamba 2, which stands in place of attention in some layers of
// hybrid models, or beside it. Each head keeps a matrix of what it has seen, of a size that does
// not grow with the text.
//
// Shapes: T tokens, D width, H heads of P columns, G groups of heads with the same B and C of N
// columns each; I = H·P, C = I + 2 G·N.
//   z|u|a = src Winᵀ + bias                  [T, I + C + H]
//   x|B|C = silu(conv(u))                    ops/causal_conv.h
//   decay, step = gates(a)                   ops/delta_gates.h
//   o = recurrence(C, B, x, decay, step) + x · skip      [T, I], ops/delta_rule.h
//   dst = norm(o · silu(z))                  of I / G columns each; in some models of Falcon-H1
//                                            norm(o) · silu(z), in most o · silu(z)
// Formulas: Dao and Gu, Transformers are SSMs, 2024; as Granite 4, Bamba and Nemotron-H have them;
// Falcon-H1 multiplies src and the parts of z|u|a with numbers besides (projection.h).
//
// Inference keeps the last inputs of the convolution and the matrices of every sequence
// (SequenceStates). Training begins with none and makes x|B|C anew where they are needed.
// saved: z|u|a, o, and 1/std of the norms. pending: the gradients at z|u|a, at what the convolution
// gives and at what the norm gives, and slopes of the parameters of heads. Threads: const.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "model/conv_layer.h"
#include "model/norm_layer.h"
#include "model/recurrent_attention.h"
#include "ops/delta_gates.h"
#include "ops/delta_rule.h"

namespace jige::model {

// Full names of the modules, without ".weight"; those of parameters without suffix.
struct Mamba2Names {
  std::string in;
  std::string conv;
  std::string log_scale;  // parameter
  std::string step_bias;  // parameter
  std::string skip;       // parameter
  std::string norm;
};

struct Mamba2Memory {
  struct Activations {
    TensorView in, o;
    NormStats stats;
    TensorView u;  // adapters
  };
  struct Gradients {
    TensorView in, conv, normed;
    TensorView slopes_scale, slopes_bias, slopes_skip;  // [T, H] f32
    TensorView v;                                       // adapters
  };
  struct Work {
    TensorView conv;                       // [T, C] what the convolution gives
    TensorView log_decay, step;            // [T, H] f32
    TensorView gated;                      // what stands between o and dst, of X and W
    TensorView grad_gated, grad_o;         // of X
    TensorView grad_conv;                  // of X
    TensorView grad_log_decay, grad_step;  // of X
  };
};

class Mamba2 final : public RecurrentAttention<Mamba2Memory> {
 public:
  // Appends the parameters.
  Mamba2(const formats::ModelConfig& config, const Mamba2Names& names,
         const std::optional<formats::LoraConfig>& lora, DeviceKind device,
         std::vector<ParamSpec>& params);

  int64_t columns() const override { return config_.value_columns(); }
  int64_t thread_scratch_bytes(int64_t token_count) const override;
  double forward_flops(double token_count, double context_mean) const override;

  void forward(const BlockContext& context, const BlockWeights& weights, const Batch& batch,
               const TensorView& src, const TensorView& dst,
               const AttentionMemory& memory) const override;
  void backward_input(const BlockContext& context, const BlockWeights& weights, const Batch& batch,
                      const TensorView& dst, const TensorView& grad_dst, const TensorView& grad_src,
                      const AttentionMemory& memory) const override;
  void backward_weight(const BlockContext& context, const BlockWeights& weights, const Batch& batch,
                       const TensorView& src, const AttentionMemory& memory) const override;

 private:
  Activations place_activations(Placement& at, int64_t token_count, DType compute,
                                bool saves) const override;
  Gradients place_pending(Placement& at, int64_t token_count, DType compute) const override;
  Work place_work(Placement& at, int64_t token_count, DType compute, PackFor use) const override;

  int64_t in_columns() const {
    return config_.value_columns() + config_.conv_columns() + config_.heads;
  }
  // Columns of z|u|a or its gradient.
  TensorView gate_of(const TensorView& in) const {
    return in.column_range(0, config_.value_columns());
  }
  TensorView conv_of(const TensorView& in) const {
    return in.column_range(config_.value_columns(),
                           config_.value_columns() + config_.conv_columns());
  }
  TensorView step_of(const TensorView& in) const {
    return in.column_range(in_columns() - config_.heads, in_columns());
  }
  // Columns of x|B|C or its gradient.
  TensorView values_of(const TensorView& conv) const {
    return conv.column_range(0, config_.value_columns());
  }
  TensorView keys_of(const TensorView& conv) const {
    return conv.column_range(config_.value_columns(),
                             config_.value_columns() + config_.key_columns());
  }
  TensorView queries_of(const TensorView& conv) const {
    return conv.column_range(config_.value_columns() + config_.key_columns(),
                             config_.conv_columns());
  }
  ops::DeltaRuleShape shape() const;
  ops::DeltaGates gates(const BlockWeights& weights, const TensorView& in, const Work& work) const;
  ops::DeltaRuleForward recurrence(const BlockWeights& weights, const Batch& batch,
                                   const TensorView& dst, const Work& work) const;
  // x|B|C, decay and step.
  void prepare(const BlockContext& context, const BlockWeights& weights, const Batch& batch,
               const TensorView& in, const Work& work) const;
  bool has_norm() const { return config_.norm != formats::GatedNorm::kNone; }
  bool norm_first() const { return config_.norm == formats::GatedNorm::kNormFirst; }
  // dst from o.
  void forward_norm(Stream& stream, const BlockWeights& weights, const TensorView& dst,
                    const Activations& views) const;
  // What X does up to the gradient at o, and from there on.
  void backward_norm(Stream& stream, const BlockWeights& weights, const Activations& saved,
                     const TensorView& grad_dst, const Gradients& pending, const Work& work) const;
  void backward_recurrence(const BlockContext& context, const BlockWeights& weights,
                           const Batch& batch, const Activations& saved, const Gradients& pending,
                           const Work& work) const;

  formats::Mamba2Config config_;
  ConvLayer conv_;
  size_t log_scale_ = 0;  // places among the parameters
  size_t step_bias_ = 0;
  size_t skip_ = 0;
  GroupNormLayer norm_;
};

}  // namespace jige::model
