// TransformerLayer: attention and MLP of a decoder, for all families.
//
// Shapes: T tokens, D width, H query heads, G key/value heads, d head dimension.
//   n1 = norm1(src)                     [T, D]
//   q|k|v = n1 Wqkvᵀ + b                [T, (H + 2G) d]
//   q, k = rope(head_norm(q, k))        each where a layer has it
//   o = attention(q, k, v) Woᵀ + b      with sinks where a layer has them
//   x1 = src + scale · dropout(norm1_after(o))
//   n2 = norm2(x1)
//   m = mlp(n2)                         one of all tokens (dense_mlp.h) or experts (expert_mlp.h)
//   dst = x1 + scale · dropout(norm2_after(m))
// Where the parts stand side by side, n2 = norm2(src), or n1 where they have one norm. Norms stand
// before, behind or on both sides; without norm1 and norm2, n1 and n2 are src and x1. src, x1 and
// dst are f32, what is between products is in the compute type.
//
// saved: x1 (not side by side), q|k|v (before head norms where there are any, after rope where
// not), attention output, its log-sum-exp, what the MLP saves, 1/std of the norms, and o and m
// where a norm is behind them. n1, n2 and normalised heads are computed anew where they are needed.
// pending: the gradients at the outputs of the products and of the norms. Threads: const.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "formats/model_config.h"
#include "model/block.h"
#include "model/dense_mlp.h"
#include "model/expert_mlp.h"
#include "model/norm_layer.h"
#include "model/placement.h"
#include "model/projection.h"

namespace jige::model {

// Full names of a layer's modules, without ".weight".
struct LayerNames {
  std::string norm1;
  std::vector<std::string> qkv;  // q, k and v, or one fused module
  std::string q_norm;
  std::string k_norm;
  bool head_norms_stacked = false;  // those of heads with weights of their own are one tensor
  std::string sinks;                // without suffix
  std::string attention_output;
  std::string norm1_after;
  std::string norm2;
  std::vector<std::string> ffn_input;  // gate and up, or one
  std::string ffn_output;
  ExpertNames experts;  // in place of both, in families that have them
  std::string norm2_after;
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

  // Its linear layers but experts, each with its parts' names: what adapters may be added to.
  std::vector<const Projection*> projections() const;

 private:
  // What F leaves for X and W. An F that saves nothing places the same in its workspace.
  struct Activations {
    TensorView x1, qkv, attended, lse;
    TensorView o, m;  // where a norm is behind them
    NormStats stats1, stats2, stats_q, stats_k, stats_o, stats_m;
    TensorView u_qkv, u_attention_output;  // adapters
    DenseMlp::Saved mlp;                   // this or experts
    ExpertMlp::Saved experts;
  };
  // The rest of a task's workspace. One block of rows serves several purposes, one after the other:
  // n1, n2 and a in F and W, the gradients of a and of the attention output in X.
  struct Work {
    TensorView rows;   // [T, columns of the widest]
    TensorView x1;     // [T, D] f32 of parts side by side, where nothing reads it again
    TensorView heads;  // [T, (H + G) d] normalised and rotated q|k; empty: those of qkv themselves
    TensorView adapter_scratch;
    TensorView weight_scratch;  // of W's products
    ExpertMlp::Work experts;
  };
  // What X leaves for W.
  struct Gradients {
    TensorView qkv, heads, attention_output, ffn_output, n1, n2;
    TensorView sinks;                      // [T, H] f32, what rows add to the sinks' gradients
    TensorView o_after, m_after;           // of what norms behind o and m give
    TensorView v_qkv, v_attention_output;  // adapters
    DenseMlp::Pending mlp;                 // this or experts
    ExpertMlp::Pending experts;
  };
  // Which keys the layer's queries see, and how they turn with their position.
  void place(const formats::ModelConfig& config, size_t index);
  std::vector<ProjectionOptions::Part> qkv_parts(const formats::ModelConfig& config,
                                                 const std::vector<std::string>& names) const;
  Activations place_saved(Placement& at, int64_t token_count, DType compute) const;
  Activations place_unsaved(Placement& at, int64_t token_count, DType compute) const;
  Gradients place_pending(Placement& at, int64_t token_count, DType compute) const;
  Work place_work(Placement& at, int64_t token_count, DType compute, bool training) const;

  // Of the feed-forward part.
  void place_ffn(Placement& at, Activations& views, int64_t token_count, DType compute) const;
  DenseMlp::Work dense_work(const Work& work) const;

  // n1 or n2: the residual stream as products read it.
  void enter(Stream& stream, const BlockWeights& weights, const NormLayer& norm,
             const TensorView& dst, const TensorView& src, const NormStats& stats) const;
  // The other way: adds the gradient of n1 or n2 to that of the residual stream.
  void backward_enter(Stream& stream, const BlockWeights& weights, const NormLayer& norm,
                      const TensorView& grad_stream, const TensorView& grad_dst,
                      const TensorView& src, const NormStats& stats) const;
  // What attention and MLP give the residual stream, each at a site of dropout.
  struct Part {
    const NormLayer& after;
    TensorView result;  // o or m
    NormStats stats;
    uint64_t site;
  };
  // dst = scale · dropout(after(result)); the result is in dst already where there is no norm.
  void leave(Stream& stream, const BlockWeights& weights, const Batch& batch, const Part& part,
             const TensorView& dst) const;
  // grad_result from that of the stream; what is between goes to grad_after.
  void backward_leave(Stream& stream, const BlockWeights& weights, const Batch& batch,
                      const Part& part, const TensorView& grad_stream, const TensorView& grad_after,
                      const TensorView& grad_result) const;
  Part attention_part(const Activations& saved) const;
  Part ffn_part(const Activations& saved) const;
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
  // What the feed-forward part reads of the residual stream.
  const TensorView& ffn_source(const TensorView& src, const Activations& views) const {
    return parallel_ ? src : views.x1;
  }
  // m in dst, from what it reads.
  void forward_ffn(const BlockContext& context, const BlockWeights& weights, const TensorView& src,
                   const TensorView& dst, const Activations& views, const Work& work) const;
  // Sets grad_src to grad_dst and adds what comes through the feed-forward part; of one norm for
  // both parts that is left to backward_attention.
  void backward_ffn(const BlockContext& context, const BlockWeights& weights, const Batch& batch,
                    const TensorView& src, const TensorView& grad_dst, const TensorView& grad_src,
                    const Activations& saved, const Gradients& pending, const Work& work) const;
  // W of the feed-forward part; n2 is computed anew.
  void ffn_gradients(const BlockContext& context, const BlockWeights& weights,
                     const TensorView& src, const Activations& saved, const Gradients& pending,
                     const Work& work) const;
  // Adds to grad_src what comes through attention, from the gradient of its product.
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
  ops::AttentionShape attention_shape() const;
  // The same with the sinks, where the layer has any.
  ops::AttentionShape attention_shape(const BlockWeights& weights) const;

  std::string name_;
  uint64_t index_;
  int64_t width_;
  int64_t heads_;
  int64_t kv_heads_;
  int64_t head_dim_;
  int64_t rope_begin_ = 0;        // the first of its columns of the rope table
  int64_t query_rope_begin_ = 0;  // the same for queries
  int64_t turned_ = 0;            // columns of a head that turn
  int64_t window_ = 0;
  double score_scale_ = 1;
  double score_cap_ = 0;
  float residual_scale_ = 1;
  std::optional<size_t> sinks_;  // its place among the parameters
  bool head_norms_ = false;      // of each head or of all
  bool parallel_ = false;        // both parts read src
  bool one_norm_ = false;        // and n2 is n1
  bool norms_before_ = true;
  bool norms_after_ = false;

  std::vector<ParamSpec> params_;
  NormLayer norm1_, norm2_, norm1_after_, norm2_after_;
  HeadNormLayer q_norm_, k_norm_;
  Projection qkv_, attention_output_;
  std::optional<DenseMlp> mlp_;  // this or experts_
  std::optional<ExpertMlp> experts_;
  PackedSizes packed_;
};

}  // namespace jige::model
