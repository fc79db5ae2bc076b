// GroupedAttention: attention whose query heads share key and value heads, a group each; as many of
// these as query heads, or one, are the extremes.
//
// Shapes: T tokens, D width, H query heads, G key/value heads, d head dimension.
//   q|k|v = src Wqkvᵀ + b               [T, (H + 2G) d]
//   q, k = rope(head_norm(q, k))        each where a layer has it; or head_norm(rope(q, k));
//   queries
//                                       alone may grow with the position instead (rope_table.h)
//   dst = attention(q, k, v)            [T, H·d]; with sinks where a layer has them
// Where heads have gates, q|g|k|v is the product, and dst = attention(q, k, v) · sigmoid(g); where
// they have one number each for a gate, q|k|v|h, and a head's columns of dst are times sigmoid of
// its one of h [T, H]. Where keys are values, q|k is the product, and values are k as it was before
// its norm; values may have a norm of their own, without weights. Tokens may see those of their own
// chunk of the sequence alone, or those behind them, too. A layer that has the keys and values of
// an earlier one has queries alone, and reads those from the stream (stream_layout.h), or in
// inference from that layer's cache. Scores may depend on the distance of query and key, too, by a
// table of all layers: of numbers (ops/distance_scores.h), or of rows [2S, D] that queries and keys
// are multiplied with (ops/distance_rows.h), behind a norm of all layers and a projection: that of
// queries and keys, or of their own. Of the rows those that a batch's longest sequence needs are
// projected in every F.
//
// saved: the product (before head norms where there are any, after rope where none are behind it),
// the log-sum-exp of scores, 1/std of the head norms, and what attention gave where gates come
// behind it. Normalised heads are computed anew where they are needed. pending: the gradients at
// the product and normalised heads, and slopes of the sinks. gathered (sequences are divided among
// ranks): keys and values of all rows, in X also queries, what attention gave and its gradient.
// Threads: const.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "model/attention.h"
#include "model/norm_layer.h"
#include "ops/distance_rows.h"

namespace jige::model {

// Full names of the modules, without ".weight".
struct GroupedAttentionNames {
  std::vector<std::string> qkv;  // q, k and v, q and k, q, or one fused module
  std::string q_norm;
  std::string k_norm;
  bool head_norms_stacked = false;  // those of heads with weights of their own are one tensor
  std::string sinks;                // without suffix
  std::string head_gates;
  std::string distances;  // scores by distance
  struct DistanceRows {
    std::string table;
    std::string norm;
    std::string for_queries;  // what projects rows that queries are multiplied with
    std::string for_keys;
  };
  DistanceRows distance_rows = {};
};

struct GroupedAttentionOptions {
  int64_t layer = 0;
  bool transposed = false;  // files hold matrices as [in, out]
  bool halves_apart = false;
  bool bounded = false;
  std::optional<formats::LoraConfig> lora;
  DeviceKind device = DeviceKind::kCpu;
};

class GroupedAttention final : public Attention {
 public:
  // Appends the parameters.
  GroupedAttention(const formats::ModelConfig& config, const GroupedAttentionNames& names,
                   const GroupedAttentionOptions& options, std::vector<ParamSpec>& params);

  int64_t columns() const override { return q_columns(); }
  std::vector<const Projection*> projections() const override {
    if (rows_ && rows_->projection) return {&qkv_, &*rows_->projection};
    return {&qkv_};
  }
  void plan_forward(Placement& at, DType compute, ops::WeightFormat format) override;
  void plan_backward(Placement& at, DType compute, ops::WeightFormat format) override;
  void pack(Stream& stream, const BlockWeights& weights, DType compute,
            PackFor use) const override {
    for (const Projection* projection : projections()) {
      projection->pack(stream, weights, compute, use);
    }
  }
  int64_t saved_bytes(int64_t token_count, DType compute) const override;
  int64_t pending_bytes(int64_t token_count, DType compute) const override;
  int64_t workspace_bytes(int64_t token_count, DType compute, PackFor use) const override;
  int64_t gathered_bytes(int64_t row_count, DType compute) const override;
  int64_t thread_scratch_bytes(int64_t token_count) const override;
  double forward_flops(double token_count, double context_mean) const override;

  bool may_norm() const override { return true; }
  void forward(const BlockContext& context, const BlockWeights& weights, const Batch& batch,
               const TensorView& src, const TensorView& dst,
               const AttentionMemory& memory) const override;
  void backward_input(const BlockContext& context, const BlockWeights& weights, const Batch& batch,
                      const TensorView& dst, const TensorView& grad_dst, const TensorView& grad_src,
                      const AttentionMemory& memory) const override;
  bool wants_source(const BlockWeights& weights) const override {
    return qkv_.wants_gradient(weights);
  }
  void backward_weight(const BlockContext& context, const BlockWeights& weights, const Batch& batch,
                       const TensorView& src, const AttentionMemory& memory) const override;

 private:
  // What F leaves for X and W. An F that saves nothing places qkv and u in its workspace.
  struct Activations {
    TensorView qkv, lse;
    TensorView attended;  // [T, H·d] before its gates
    NormStats stats_q, stats_k, stats_v;
    TensorView u;          // adapters
    TensorView distances;  // [H, distance_count(T)] f32: scores by distance, in inference
    // Rows by distance, in inference: [R, D], what is projected [R, columns], both of the compute
    // type, and the row of each distance, [2T - 1] i32.
    TensorView rows, projected, row_of;
  };
  // What X leaves for W.
  struct Gradients {
    TensorView qkv, heads;
    TensorView sinks;  // [T, H] f32, what rows add to the sinks' gradients
    TensorView v;      // adapters
  };
  // Which keys the layer's queries see, and how they turn with their position.
  void place(const formats::ModelConfig& config, int64_t layer);
  std::vector<ProjectionOptions::Part> qkv_parts(const formats::ModelConfig& config,
                                                 const GroupedAttentionNames& all,
                                                 const GroupedAttentionOptions& options) const;
  Activations place_saved(Placement& at, int64_t token_count, DType compute) const;
  Activations place_unsaved(Placement& at, int64_t token_count, DType compute) const;
  Gradients place_pending(Placement& at, int64_t token_count, DType compute) const;
  // Normalised and rotated q|k, or q|k|v, as qkv has them; in inference and without head norms
  // those of qkv.
  TensorView place_heads(Placement& at, int64_t token_count, DType compute) const;
  // [T, 2 G·d]: keys and values of another layer, or in X their gradients.
  TensorView place_shared(Placement& at, int64_t token_count, DType compute) const;
  // Queries, keys and values as attention reads them, in training.
  struct Heads {
    TensorView q, k, v;
  };
  Heads heads_of(Stream& stream, const TensorView& heads, const TensorView& product,
                 const TensorView& shared, const TensorView& narrow) const;
  TensorView shared_keys(const TensorView& rows) const {
    return rows.column_range(0, kv_columns());
  }
  TensorView shared_values(const TensorView& rows) const {
    return rows.column_range(kv_columns(), 2 * kv_columns());
  }
  // Rows of all ranks, where sequences are divided: F has keys and values alone.
  struct Whole {
    TensorView k, v, q, dst, grad_dst, lse;
  };
  Whole place_whole(Placement& at, int64_t row_count, DType compute) const;
  void attend_pieces(const BlockContext& context, const BlockWeights& weights,
                     const TensorView& dst, const Heads& heads, const Activations& views) const;
  // What X hands to the gradient of attention.
  struct AttendedGradients {
    Heads heads, grads;
    TensorView dst, grad_dst, lse;
  };
  void backward_attend(const BlockContext& context, const BlockWeights& weights, const Batch& batch,
                       const AttendedGradients& rows) const;
  void backward_pieces(const BlockContext& context, const BlockWeights& weights,
                       const AttendedGradients& rows) const;
  // The gates of heads, or their gradients: [T, H] f32.
  TensorView place_head_gates(Placement& at, int64_t token_count) const;
  // Of X: the gradient of what gates come behind.
  TensorView place_attended(Placement& at, int64_t token_count, DType compute) const;

  // heads = norm(q|k), and of v where it has one, when this layer has head norms.
  void normalise_heads(Stream& stream, const BlockWeights& weights, const TensorView& heads,
                       const TensorView& qkv, const Activations& stats) const;
  // The other way, of X: the gradient at the product.
  void backward_norms(Stream& stream, const BlockWeights& weights, const Activations& saved,
                      const Gradients& pending) const;
  TensorView backward_gates(Stream& stream, const Activations& saved, const Gradients& pending,
                            const TensorView& grad_dst, const TensorView& grad_attended) const;
  // What attention gave times the gates of heads, which `gates` is memory for.
  void gate_heads(Stream& stream, const TensorView& dst, const TensorView& attended,
                  const TensorView& product, const TensorView& gates) const;
  // Of X: what attention gave once more, [T, H·d], and the gates and their gradients, [T, H] f32.
  struct HeadGateMemory {
    TensorView attended, gates, grad_gates;
  };
  HeadGateMemory place_head_gate_memory(Placement& at, int64_t token_count, DType compute) const;
  TensorView backward_head_gates(Stream& stream, const Activations& saved, const Gradients& pending,
                                 const TensorView& grad_dst, const TensorView& grad_attended,
                                 const HeadGateMemory& memory) const;
  // Spans of rows that see one another, and of others; none where they do not in this layer.
  std::span<const ops::SequenceSpan> mutual_spans(const Batch& batch) const {
    return mutual_ ? std::span<const ops::SequenceSpan>(batch.seen)
                   : std::span<const ops::SequenceSpan>();
  }
  // The sequences of a batch as the layer's tokens see them: chunk by chunk, where it has any.
  std::vector<ops::SequenceSpan> seen(const Batch& batch) const;
  void rotate(Stream& stream, const BlockWeights& weights, const Batch& batch,
              const TensorView& heads, bool inverse) const;
  void attend(const BlockContext& context, const BlockWeights& weights, const Batch& batch,
              const TensorView& dst, const Heads& heads, const Activations& views) const;
  // Turns heads, appends keys and values and attends, where the device does that at once.
  bool attend_at_once(const BlockContext& context, const BlockWeights& weights, const Batch& batch,
                      const TensorView& dst, const Heads& heads) const;
  void attend_cached(const BlockContext& context, const BlockWeights& weights, const Batch& batch,
                     const TensorView& dst, const Heads& heads) const;

  int64_t q_columns() const { return heads_ * head_dim_; }
  int64_t kv_columns() const { return kv_heads_ * head_dim_; }
  // Where keys begin: behind queries, and their gates where there are any.
  int64_t k_begin() const { return gated_ ? 2 * q_columns() : q_columns(); }
  int64_t qk_columns() const { return k_begin() + kv_columns(); }
  int64_t qkv_columns() const { return qk_columns() + kv_columns(); }
  int64_t gate_columns() const { return head_gates_ ? heads_ : 0; }
  int64_t product_columns() const {
    const int64_t rest = shares_ ? k_begin() : keys_are_values_ ? qk_columns() : qkv_columns();
    return rest + gate_columns();
  }
  int64_t heads_columns() const {
    return shares_ ? k_begin() : value_norm_ ? qkv_columns() : qk_columns();
  }
  bool norms_values() const { return value_norm_ && !shares_; }
  // Of qkv, heads or their gradients.
  TensorView queries_of(const TensorView& rows) const { return rows.column_range(0, q_columns()); }
  TensorView keys_of(const TensorView& rows) const {
    return rows.column_range(k_begin(), qk_columns());
  }
  TensorView values_of(const TensorView& rows) const {
    return rows.column_range(qk_columns(), qkv_columns());
  }
  // Values before their norm, of a product or its gradient.
  TensorView plain_values_of(const TensorView& rows) const {
    return keys_are_values_ ? keys_of(rows) : values_of(rows);
  }
  TensorView gates_of(const TensorView& rows) const {
    return rows.column_range(q_columns(), k_begin());
  }
  TensorView head_gates_of(const TensorView& rows) const {
    return rows.column_range(product_columns() - gate_columns(), product_columns());
  }
  // A row for each head. REQUIRES: rows are whole.
  TensorView by_head(const TensorView& rows) const {
    return TensorView::of(rows.data, rows.dtype, Shape{rows.rows() * heads_, head_dim_});
  }
  bool any_gates() const { return gated_ || head_gates_; }
  ops::AttentionShape shape() const;
  // Appends the parameters of scores or rows by distance, where there are any.
  void add_distances(const formats::ModelConfig& config, const GroupedAttentionNames& names,
                     const GroupedAttentionOptions& options, std::vector<ParamSpec>& params);
  void place_distances(Placement& at, int64_t token_count, DType compute, Activations& views) const;
  // Makes them for the longest sequence of a batch, in a part of their place, and says in `own`
  // where they are.
  void set_distances(Stream& stream, const BlockWeights& weights, const Batch& batch, DType compute,
                     const Activations& views, ops::AttentionShape& own) const;
  void set_distance_rows(Stream& stream, const BlockWeights& weights, int64_t tokens, DType compute,
                         const Activations& views, ops::AttentionShape& own) const;
  // How much more is multiplied for scores than queries with keys.
  double score_products() const;
  // The same with the sinks, where the layer has any.
  ops::AttentionShape shape(const BlockWeights& weights) const;

  int64_t heads_;
  int64_t kv_heads_;
  int64_t head_dim_;
  int64_t rope_begin_ = 0;        // the first of its columns of the rope table
  int64_t query_rope_begin_ = 0;  // the same for queries
  int64_t turned_ = 0;            // columns of a head that turn
  int64_t window_ = 0;
  int64_t chunk_ = 0;          // tokens see those of their own alone; 0: all
  bool queries_grow_ = false;  // and keys stay as they are
  double score_scale_ = 1;
  double score_cap_ = 0;
  std::optional<size_t> sinks_;      // its place among the parameters
  std::optional<size_t> distances_;  // that of the table of scores by distance
  struct DistanceRows {
    ops::DistanceTable table;
    size_t param = 0;  // that of the table of rows
    bool for_queries = false, for_keys = false;
    std::optional<NormLayer> norm;
    std::optional<Projection> projection;  // without it that of queries and keys
  };
  std::optional<DistanceRows> rows_;
  bool head_norms_ = false;   // of each head or of all
  bool turns_first_ = false;  // norms of heads are behind their turning
  bool gated_ = false;
  bool head_gates_ = false;
  bool keys_are_values_ = false;
  bool value_norm_ = false;
  bool shares_ = false;       // has the keys and values of an earlier layer
  bool gives_ = false;        // its own are those of later ones, too
  bool looks_ahead_ = false;  // queries see keys behind them
  bool mutual_ = true;        // of rows that see one another anywhere

  HeadNormLayer q_norm_, k_norm_;
  NormLayer v_norm_;
  Projection qkv_;
};

}  // namespace jige::model
