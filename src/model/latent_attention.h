// LatentAttention: multi-head latent attention (DeepSeek-V2). A token's keys and values of all
// heads are made of one latent vector and of a key that turns, which all heads share.
//
// Shapes: T tokens, D width, H heads, R rank of the latent, Q rank of the queries' latent, n
// columns of queries and keys that do not turn, r that do, d = n + r, w columns of values.
//   a|c|s = src Wdownᵀ + b            [T, Q + R + r]; without a latent of the queries q|c|s,
//                                     [T, H·d + R + r]
//   q = norm(a) Wqᵀ                   [T, H·d]
//   p = norm(c) Wkvᵀ                  [T, H·(n + w)]
//   q, s = rope(q), rope(s)           the last r columns of heads; queries may grow with the
//                                     position as a whole (rope_table.h)
//   k, v = joined p and s             [T, H·d] each (ops/head_parts.h): v with d - w zeros
//   dst = attention(q, k, v)          [T, H·w]: without what the zeros give
// The norms have an epsilon of their own, whatever the model's.
// With a cache, which holds norm(c)|s of a token once instead of keys and values of all heads, p is
// not made: queries meet the latents themselves (latent_heads.h).
//
// saved: a|c|s, q, p, the log-sum-exp of scores and 1/std of the norms. k, v and normalised rows
// are made anew where they are needed. pending: the gradients of a|c|s, of q, p and the norms'
// results. Threads: const.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "model/attention.h"
#include "model/latent_heads.h"
#include "model/norm_layer.h"

namespace jige::model {

// Full names of the modules, without ".weight".
struct LatentAttentionNames {
  std::string query;  // where queries have no latent
  std::string query_down;
  std::string query_norm;
  std::string query_up;
  std::string down;  // c and s
  std::string norm;
  std::string up;
};

class LatentAttention final : public Attention {
 public:
  // Appends the parameters.
  LatentAttention(const formats::ModelConfig& config, const LatentAttentionNames& names,
                  int64_t layer, const std::optional<formats::LoraConfig>& lora, DeviceKind device,
                  std::vector<ParamSpec>& params);

  int64_t columns() const override { return heads_ * value_dim_; }
  std::vector<const Projection*> projections() const override;
  void plan_forward(Placement& at, DType compute, ops::WeightFormat format) override;
  void plan_backward(Placement& at, DType compute, ops::WeightFormat format) override;
  void pack(Stream& stream, const BlockWeights& weights, DType compute, PackFor use) const override;
  int64_t saved_bytes(int64_t token_count, DType compute) const override;
  int64_t pending_bytes(int64_t token_count, DType compute) const override;
  int64_t workspace_bytes(int64_t token_count, DType compute, PackFor use) const override;
  int64_t thread_scratch_bytes(int64_t token_count) const override;
  double forward_flops(double token_count, double context_mean) const override;

  void forward(const BlockContext& context, const BlockWeights& weights, const Batch& batch,
               const TensorView& src, const TensorView& dst,
               const AttentionMemory& memory) const override;
  void backward_input(const BlockContext& context, const BlockWeights& weights, const Batch& batch,
                      const TensorView& dst, const TensorView& grad_dst, const TensorView& grad_src,
                      const AttentionMemory& memory) const override;
  bool wants_source(const BlockWeights& weights) const override {
    return down_.wants_gradient(weights);
  }
  void backward_weight(const BlockContext& context, const BlockWeights& weights, const Batch& batch,
                       const TensorView& src, const AttentionMemory& memory) const override;

 private:
  // What F leaves for X and W; in inference the same but statistics is in its workspace.
  struct Activations {
    TensorView down;  // a|c|s or q|c|s
    TensorView q, parts, lse;
    NormStats query_stats, stats;
    TensorView u_down, u_query_up, u_up;  // adapters
  };
  // What X leaves for W.
  struct Gradients {
    TensorView down, q, parts;
    TensorView query_latent, latent;      // of what the norms give
    TensorView v_down, v_query_up, v_up;  // adapters
  };
  // The rest of a task's workspace.
  struct Work {
    TensorView query_latent, latent;  // what the norms give
    TensorView keys, values;
    TensorView attended;                               // [T, H·d], where values are narrower
    TensorView grad_attended, grad_keys, grad_values;  // likewise; of X
  };
  // The workspace of an F with a cache.
  struct CachedWork {
    TensorView down, q, query_latent;
    TensorView keys, values;       // [T, R + r]: norm(c)|s, and zeros in the place of s
    TensorView queries, attended;  // [T, H·(R + r)]
  };
  Activations place_views(Placement& at, int64_t token_count, DType compute, bool saved) const;
  Gradients place_pending(Placement& at, int64_t token_count, DType compute) const;
  CachedWork place_cached(Placement& at, int64_t token_count, DType compute) const;
  Work place_work(Placement& at, int64_t token_count, DType compute, PackFor use) const;
  // What X and W read and write.
  struct BackwardViews {
    Activations saved;
    Gradients pending;
    Work work;
  };
  BackwardViews place_backward(const AttentionMemory& memory, int64_t token_count,
                               DType compute) const;

  bool has_query_latent() const { return query_rank_ > 0; }
  bool narrow() const { return value_dim_ < head_dim_; }
  int64_t own() const { return head_dim_ - turned_; }  // n
  // Columns of `down`, or of its gradient.
  TensorView query_of(const TensorView& down) const { return down.column_range(0, first_); }
  TensorView latent_of(const TensorView& down) const {
    return down.column_range(first_, first_ + rank_);
  }
  TensorView shared_of(const TensorView& down) const {
    return down.column_range(first_ + rank_, first_ + rank_ + turned_);
  }
  ops::AttentionShape shape() const;
  void rotate(Stream& stream, const BlockWeights& weights, const Batch& batch, const TensorView& q,
              const TensorView& shared, bool inverse) const;
  void join(Stream& stream, const Activations& views, const Work& work) const;
  void run_forward(const BlockContext& context, const BlockWeights& weights,
                   const AttentionMemory& memory, const Projection& projection,
                   const TensorView& dst, const TensorView& src, const TensorView& product) const;
  void forward_flat(const BlockContext& context, const BlockWeights& weights, const Batch& batch,
                    const TensorView& src, const TensorView& dst,
                    const AttentionMemory& memory) const;
  void forward_cached(const BlockContext& context, const BlockWeights& weights, const Batch& batch,
                      const TensorView& src, const TensorView& dst,
                      const AttentionMemory& memory) const;

  int64_t heads_;
  int64_t head_dim_;
  int64_t turned_;
  bool turns_ = true;     // else those columns stay as they are
  int64_t growth_begin_;  // of the rope table that queries grow by; -1: they do not
  int64_t value_dim_;
  int64_t rank_;
  int64_t query_rank_;
  int64_t first_;  // columns of `down` before c
  double score_scale_;

  Projection down_, query_up_, up_;
  LatentHeads latent_heads_;  // of up_
  NormLayer query_norm_, norm_;
};

}  // namespace jige::model
