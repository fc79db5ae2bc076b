// TransformerLayer: pre-norm attention and MLP of a decoder, for all families.
//
// Shapes: T tokens, D width, H query heads, G key/value heads, d head dimension, F feed-forward
// width.
//   n1 = norm1(src)                     [T, D]
//   q|k|v = n1 Wqkvᵀ + b                [T, (H + 2G) d]
//   q, k = rope(head_norm(q, k))        head norms: Qwen3; no rope: GPT-2
//   x1 = src + dropout(attention(q, k, v) Woᵀ + b)
//   n2 = norm2(x1)
//   a = silu(g) · u, g|u = n2 Wguᵀ      or a = act(n2 Wuᵀ + b), act gelu, relu or silu; or experts
//                                       in place of both products (expert_mlp.h)
//   dst = x1 + dropout(a Wdᵀ + b)
// src, x1 and dst are f32, what is between products is in the compute type.
//
// saved: x1, q|k|v (before head norms where there are any, after rope where not), attention output,
// its log-sum-exp, g|u, and 1/std of the norms. n1, n2, the a without gate and normalised heads are
// computed anew where they are needed; the a of g|u takes the place of g in X, on the way.
// pending: the gradients at the outputs of the four products and of the norms.
// Threads: const.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "formats/model_config.h"
#include "model/block.h"
#include "model/expert_mlp.h"
#include "model/norm_layer.h"
#include "model/placement.h"
#include "model/projection.h"
#include "ops/elementwise.h"

namespace jige::model {

// Full names of a layer's modules, without ".weight".
struct LayerNames {
  std::string norm1;
  std::vector<std::string> qkv;  // q, k and v, or one fused module
  std::string q_norm;            // empty without head norms
  std::string k_norm;
  std::string attention_output;
  std::string norm2;
  std::vector<std::string> ffn_input;  // gate and up, or one
  std::string ffn_output;
  ExpertNames experts;  // in place of both, in families that have them
};

struct LayerOptions {
  int64_t index = 0;
  LayerNames names;
  bool transposed = false;  // files hold matrices as [in, out]
  std::optional<formats::LoraConfig> lora;
};

class TransformerLayer final : public Block {
 public:
  TransformerLayer(const formats::ModelConfig& config, const LayerOptions& options);

  const std::string& name() const override { return name_; }
  std::span<const ParamSpec> params() const override { return params_; }
  int64_t packed_bytes(DType compute, PackFor use, ops::WeightFormat format) const override;
  void pack(Stream& stream, const BlockWeights& weights, DType compute, PackFor use) const override;
  int64_t strip_bytes(DType compute) const override;
  void list_packs(const BlockWeights& weights, size_t param, DType compute, PackFor use,
                  std::vector<ops::PackPart>& packs) const override;
  int64_t saved_bytes(int64_t token_count, DType compute) const override;
  int64_t pending_bytes(int64_t token_count, DType compute) const override;
  int64_t workspace_bytes(int64_t token_count, DType compute, PackFor use) const override;
  int64_t thread_scratch_bytes(int64_t token_count, DType compute, int threads,
                               bool frozen_base) const override;

  void forward(const BlockContext& context, const BlockWeights& weights, const Batch& batch,
               const TensorView& src, const TensorView& dst,
               const BlockMemory& memory) const override;
  void backward_input(const BlockContext& context, const BlockWeights& weights, const Batch& batch,
                      const TensorView& src, const TensorView& grad_dst, const TensorView& grad_src,
                      const BlockMemory& memory) const override;
  void backward_weight(const BlockContext& context, const BlockWeights& weights, const Batch& batch,
                       const TensorView& src, const BlockMemory& memory) const override;
  double forward_flops(double token_count, double context_mean) const override;

 private:
  // What F leaves for X and W. An F that saves nothing places the same in its workspace.
  struct Activations {
    TensorView x1, qkv, attended, lse, ffn;
    NormStats stats1, stats2, stats_q, stats_k;
    TensorView u_qkv, u_attention_output, u_ffn_input, u_ffn_output;  // adapters
    ExpertMlp::Saved experts;                                         // instead of ffn
  };
  // The rest of a task's workspace. One block of rows serves several purposes, one after the other:
  // n1, n2 and a in F and W, the gradients of a and of the attention output in X.
  struct Work {
    TensorView rows;   // [T, columns of the widest]
    TensorView heads;  // [T, (H + G) d] normalised and rotated q|k; empty: those of qkv themselves
    TensorView adapter_scratch;
    TensorView weight_scratch;  // of W's products
    ExpertMlp::Work experts;
  };
  // What X leaves for W.
  struct Gradients {
    TensorView qkv, heads, attention_output, ffn, ffn_output, n1, n2;
    TensorView v_qkv, v_attention_output, v_ffn_input, v_ffn_output;  // adapters
    ExpertMlp::Pending experts;                                       // instead of ffn
  };
  Activations place_saved(Placement& at, int64_t token_count, DType compute) const;
  Activations place_unsaved(Placement& at, int64_t token_count, DType compute) const;
  Gradients place_pending(Placement& at, int64_t token_count, DType compute) const;
  Work place_work(Placement& at, int64_t token_count, DType compute, bool training) const;

  // Adds the feed-forward layer's parameters; products that end in the residual stream start with
  // this deviation.
  void add_ffn(const formats::ModelConfig& config, const LayerOptions& options,
               double residual_std);
  // The layer's products, experts aside.
  std::vector<const Projection*> projections() const;

  TensorView heads_of(const Activations& saved, const Work& work) const;
  void forward_attention(const BlockContext& context, const BlockWeights& weights,
                         const Batch& batch, const Activations& saved,
                         const TensorView& heads) const;
  // heads = norm(q|k), when this layer has head norms.
  void normalise_heads(Stream& stream, const BlockWeights& weights, const TensorView& heads,
                       const TensorView& qkv, const NormStats& stats_q,
                       const NormStats& stats_k) const;
  void rotate(Stream& stream, const BlockWeights& weights, const Batch& batch,
              const TensorView& heads, bool inverse) const;
  void activate(Stream& stream, const TensorView& dst, const TensorView& ffn) const;
  // dst = the feed-forward layer's part of the residual stream, from the attention's end.
  void forward_ffn(const BlockContext& context, const BlockWeights& weights, const TensorView& dst,
                   const Activations& views, const Work& work) const;
  // From grad_dst to the gradient of x1, in grad_src.
  void backward_ffn(const BlockContext& context, const BlockWeights& weights, const Batch& batch,
                    const TensorView& grad_dst, const TensorView& grad_src,
                    const Activations& saved, const Gradients& pending, const Work& work) const;
  // From the gradient of its result to that of n2, in pending.
  void backward_dense_ffn(const BlockContext& context, const BlockWeights& weights,
                          const Activations& saved, const Gradients& pending,
                          const Work& work) const;
  // W of the feed-forward layer; n2 is computed anew.
  void ffn_gradients(const BlockContext& context, const BlockWeights& weights,
                     const Activations& saved, const Gradients& pending, const Work& work) const;
  // From the gradient of x1 to that of src, in grad_src.
  void backward_attention(const BlockContext& context, const BlockWeights& weights,
                          const Batch& batch, const TensorView& src, const TensorView& grad_src,
                          const Activations& saved, const Gradients& pending,
                          const Work& work) const;
  // From the gradient of the attention's result to that of q|k|v, in pending.
  void backward_heads(const BlockContext& context, const BlockWeights& weights, const Batch& batch,
                      const TensorView& grad_attended, const Activations& saved,
                      const Gradients& pending, const Work& work) const;

  // model/block.h lists the sites.
  uint64_t attention_site() const { return 1 + 2 * index_; }
  uint64_t ffn_site() const { return 2 + 2 * index_; }
  int64_t q_columns() const { return heads_ * head_dim_; }
  int64_t kv_columns() const { return kv_heads_ * head_dim_; }
  int64_t qk_columns() const { return q_columns() + kv_columns(); }
  int64_t qkv_columns() const { return q_columns() + 2 * kv_columns(); }
  ops::Activation plain_activation() const;
  bool gated() const { return activation_ == formats::ActivationKind::kSwiGlu; }
  int64_t ffn_columns() const { return gated() ? 2 * ffn_size_ : ffn_size_; }
  ops::AttentionShape attention_shape() const;

  std::string name_;
  uint64_t index_;
  int64_t width_;
  int64_t heads_;
  int64_t kv_heads_;
  int64_t head_dim_;
  int64_t ffn_size_;
  bool rotary_ = false;
  int64_t window_ = 0;
  formats::ActivationKind activation_;
  double score_scale_ = 1;
  bool head_norms_ = false;

  std::vector<ParamSpec> params_;
  NormLayer norm1_, norm2_, q_norm_, k_norm_;
  Projection qkv_, attention_output_, ffn_input_, ffn_output_;
  std::optional<ExpertMlp> experts_;  // instead of the last two
  PackedSizes packed_;
};

}  // namespace jige::model
