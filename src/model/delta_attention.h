// DeltaAttention: the gated delta net, which stands in place of attention in some layers of hybrid
// models. Each head keeps a matrix of what it has seen, of a size that does not grow with the text.
//
// Shapes: T tokens, D width, Hk key heads of dk columns, Hv value heads of dv columns,
// C = 2 Hk·dk + Hv·dv.
//   u|z|b|a = src Winᵀ                       [T, C + Hv·dv + 2 Hv]
//   q|k|v = silu(conv(u))                    ops/causal_conv.h
//   decay, rate = gates(a, b)                ops/delta_gates.h; rates up to 1, or to 2
//   o = delta_rule(q, k, v, decay, rate)     [T, Hv·dv], ops/delta_rule.h
//   dst = norm(o) · silu(z)                  norms of heads, one weight for all
// Formulas: Yang, Kautz, Hatamizadeh, Gated Delta Networks, 2025; as Qwen 3.5 has them.
//
// Inference keeps the last inputs of the convolution and the matrices of every sequence
// (SequenceStates). Training begins with none and makes q|k|v anew where they are needed.
// saved: u|z|b|a, o, and 1/std of its norms. pending: the gradients at u|z|b|a, at what the
// convolution gives and at norm(o), and slopes of the gates' parameters. Threads: const.
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
struct DeltaAttentionNames {
  // Win by parts; queries, keys and values in one module, or in one each, as the convolution.
  std::vector<std::string> qkv;
  std::string gate, rate, decay;
  // Without names of gate and decay, qkv and rate hold their rows, too: in files a key head's
  // queries, keys, values and gates come together, and its rates and decays.
  std::vector<std::string> conv;
  std::string conv_whole = {};  // where files may have three convolutions in one
  std::string log_scale;        // parameter
  std::string decay_bias;       // parameter
  std::string norm;
};

struct DeltaAttentionMemory {
  struct Activations {
    TensorView in, o;
    NormStats stats;
    TensorView u;  // adapters
  };
  struct Gradients {
    TensorView in, conv, normed;
    TensorView slopes_scale, slopes_bias;  // [T, Hv] f32
    TensorView v;                          // adapters
  };
  struct Work {
    TensorView qkv;                        // [T, C] what the convolution gives
    TensorView log_decay, rate;            // [T, Hv] f32
    TensorView normed, grad_o, grad_qkv;   // of X
    TensorView grad_log_decay, grad_rate;  // of X
  };
};

class DeltaAttention final : public RecurrentAttention<DeltaAttentionMemory> {
 public:
  // Appends the parameters.
  DeltaAttention(const formats::ModelConfig& config, const DeltaAttentionNames& names,
                 const std::optional<formats::LoraConfig>& lora, DeviceKind device,
                 std::vector<ParamSpec>& params);

  int64_t columns() const override { return value_columns(); }
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

  // Of queries, keys and values in one module, or in one each.
  std::vector<ProjectionOptions::Part> qkv_parts(const std::vector<std::string>& names) const;
  std::vector<ProjectionOptions::Part> in_parts(const DeltaAttentionNames& names) const;
  int64_t key_columns() const { return shape_.key_heads * shape_.key_dim; }
  int64_t value_columns() const { return shape_.value_heads * shape_.value_dim; }
  int64_t conv_columns() const { return 2 * key_columns() + value_columns(); }
  int64_t in_columns() const { return conv_columns() + value_columns() + 2 * shape_.value_heads; }
  // Columns of u|z|b|a or its gradient.
  TensorView conv_of(const TensorView& in) const { return in.column_range(0, conv_columns()); }
  TensorView gate_of(const TensorView& in) const {
    return in.column_range(conv_columns(), conv_columns() + value_columns());
  }
  TensorView rate_of(const TensorView& in) const {
    return in.column_range(in_columns() - 2 * shape_.value_heads,
                           in_columns() - shape_.value_heads);
  }
  TensorView decay_of(const TensorView& in) const {
    return in.column_range(in_columns() - shape_.value_heads, in_columns());
  }
  // Columns of q|k|v or its gradient.
  TensorView queries_of(const TensorView& qkv) const { return qkv.column_range(0, key_columns()); }
  TensorView keys_of(const TensorView& qkv) const {
    return qkv.column_range(key_columns(), 2 * key_columns());
  }
  TensorView values_of(const TensorView& qkv) const {
    return qkv.column_range(2 * key_columns(), conv_columns());
  }
  ops::DeltaGates gates(const BlockWeights& weights, const TensorView& in, const Work& work) const;
  ops::DeltaRuleForward rule(const Batch& batch, const TensorView& dst, const Work& work) const;
  // q|k|v, decay and rate.
  void prepare(const BlockContext& context, const BlockWeights& weights, const Batch& batch,
               const TensorView& in, const Work& work) const;

  ops::DeltaRuleShape shape_;
  ConvLayer conv_;
  size_t log_scale_ = 0;  // places among the parameters
  size_t decay_bias_ = 0;
  NormLayer norm_;
  float rate_scale_ = 1;
};

}  // namespace jige::model
