// TransformerLayer: attention and MLP of a decoder, for all families.
//
// Shapes: T tokens, D width.
//   n1 = norm1(src)                     [T, D]
//   o = attention(n1) Woᵀ + b           in one of the forms of attention.h; or two of them added
//   x1 = src + scale · dropout(norm1_after(o))
//   n2 = norm2(x1)
//   m = mlp(n2)                         one of all tokens (dense_mlp.h) or experts (expert_mlp.h),
//                                       or both side by side (experts_beside.h)
//   dst = x1 + scale · dropout(norm2_after(m))
//   dst += what the layer makes of its own input (layer_input.h), where the model has them
// A model may have something beside attention, which x1 gets, too (laurel.h), and several residual
// streams, of which src and dst here are one before and behind the layer (altup_layer.h).
// In place of norms behind the parts may stand numbers of each column, which towers have that read
// images. Where the parts stand side by side, n2 = norm2(src), or n1 where they have one norm.
// Norms stand before, behind or on both sides, or over x1 and dst themselves; without norm1 and
// norm2, n1 and n2 are src and x1. A layer may have one of the parts alone, and its norm: dst is
// then x1, or x1 is src. src, x1 and dst are f32, what is between products is in the compute type.
//
// saved: x1 (not side by side, and of both parts), the attention's result and what it saves, what
// the MLP saves, 1/std of the norms, and o and m where a norm is behind them. n1 and n2 are
// computed anew where they are needed. dst may be times a number of the layer at last. pending: the
// gradients at the outputs of the products and of the norms. Threads: const.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "formats/model_config.h"
#include "model/altup_layer.h"
#include "model/attention.h"
#include "model/block.h"
#include "model/dense_mlp.h"
#include "model/expert_mlp.h"
#include "model/experts_beside.h"
#include "model/laurel.h"
#include "model/layer_attention.h"
#include "model/layer_input.h"
#include "model/norm_layer.h"
#include "model/placement.h"
#include "model/projection.h"
#include "model/stream_layout.h"

namespace jige::model {

class TransformerLayer final : public Block {
 public:
  TransformerLayer(const formats::ModelConfig& config, const LayerOptions& options);

  const std::string& name() const override { return name_; }
  std::span<const ParamSpec> params() const override { return params_; }
  int64_t packed_bytes(DType compute, PackFor use, ops::WeightFormat format) const override;
  void pack(Stream& stream, const BlockWeights& weights, DType compute, PackFor use) const override;
  int64_t strip_bytes(DType compute) const override;
  void start_magnitudes(Stream& stream, const BlockWeights& weights, DType compute) const override {
    for (const Projection* p : projections()) p->start_magnitudes(stream, weights, compute);
  }
  void list_packs(const BlockWeights& weights, size_t param, DType compute, PackFor use,
                  std::vector<ops::PackPart>& packs) const override;
  int64_t saved_bytes(int64_t token_count, DType compute) const override;
  int64_t pending_bytes(int64_t token_count, DType compute) const override;
  int64_t workspace_bytes(int64_t token_count, DType compute, PackFor use) const override;
  int64_t gathered_bytes(int64_t row_count, DType compute) const override {
    return attention_ ? attention_->gathered_bytes(row_count, compute) : 0;
  }
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
  int64_t expert_count() const override {
    return any_experts() ? any_experts()->expert_count() : 0;
  }
  ExpertRecord expert_record(const TensorView& saved, int64_t token_count,
                             DType compute) const override;
  double forward_flops(double token_count, double context_mean) const override;

  // Its linear layers but experts, each with its parts' names: what adapters may be added to.
  std::vector<const Projection*> projections() const;
  // Its dense feed-forward part, or null where it has none or experts.
  const DenseMlp* dense() const { return mlp_ && !any_experts() ? &*mlp_ : nullptr; }

 private:
  // Those and the ones that no adapter may be added to.
  std::vector<const Projection*> all_projections() const;
  // What F leaves for X and W. An F that saves nothing places the same in its workspace.
  struct Activations {
    TensorView x1;
    TensorView attention;  // u8, the attention's own
    TensorView attended;   // its result
    TensorView o, m;       // where a norm is behind them
    NormStats stats1, stats2, stats_o, stats_m;
    TensorView u_attention_output;  // adapters
    DenseMlp::Saved mlp;            // this or experts
    ExpertMlp::Saved experts;
    ExpertsBeside::Saved beside;  // with mlp
    LayerInput::Saved input;
    AltUpLayer::Saved altup;
    Laurel::Saved laurel;
  };
  // The rest of a task's workspace. One block of rows serves several purposes, one after the other:
  // n1, n2 and a in F and W, the gradients of a and of the attention output in X.
  struct Work {
    TensorView rows;       // [T, columns of the widest]
    TensorView x1;         // [T, D] f32 of parts side by side, where nothing reads it again
    TensorView attention;  // u8, the attention's own; of an F that saves nothing among Activations
    TensorView adapter_scratch;
    TensorView weight_scratch;  // of W's products
    ops::Dropout dropout = {};  // of adapters (projection.h)
    ExpertMlp::Work experts;
    ExpertsBeside::Work beside;
    LayerInput::Work input;
    AltUpLayer::Work altup;
    Laurel::Work laurel;
    std::optional<ops::KeptColumns> kept;  // where blocks of the feed-forward part are dropped
  };
  // What X leaves for W.
  struct Gradients {
    TensorView attention;  // u8, the attention's own
    TensorView attention_output, ffn_output, n1, n2;
    TensorView o_after, m_after;    // of what norms behind o and m give
    TensorView v_attention_output;  // adapters
    DenseMlp::Pending mlp;          // this or experts
    ExpertMlp::Pending experts;
    ExpertsBeside::Pending beside;
    LayerInput::Pending input;
    AltUpLayer::Pending altup;
    Laurel::Pending laurel;
  };
  Activations place_saved(Placement& at, int64_t token_count, DType compute) const;
  Activations place_unsaved(Placement& at, int64_t token_count, DType compute) const;
  Gradients place_pending(Placement& at, int64_t token_count, DType compute) const;
  Work place_work(Placement& at, int64_t token_count, DType compute, bool training) const;
  // The same with what the batch's rows keep.
  Work work_for(Placement& at, const Batch& batch, int64_t row_count, DType compute,
                bool training) const;

  // Of several streams and what stands beside attention; of the feed-forward part.
  void place_streams(Placement& at, Activations& views, int64_t token_count, DType compute,
                     bool saves) const;
  void place_ffn(Placement& at, Activations& views, int64_t token_count, DType compute,
                 bool saves) const;
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
  // Its parts of a task's memory; an F that saves nothing has its results in its workspace.
  AttentionMemory attention_memory(const Activations& views, const Gradients& pending,
                                   const Work& work, bool saves) const;
  // Those of a task's streams that keys are shared through: F writes and reads them, X their
  // gradients, too.
  struct Streams {
    TensorView src, dst, grad_src;
    // What the parts read and, of F, write, or in X the gradient; of F, behind attention, too.
    TensorView rows, result;
    TensorView x1 = {};
  };
  // What the parts read: of several streams, what is predicted for the first.
  TensorView parts_source(const TensorView& src, const Activations& views) const {
    return altup_ ? views.altup.active : layout_.residual(src);
  }
  // Both parts, from the streams' rows to their result.
  void forward_parts(const BlockContext& context, const BlockWeights& weights, const Batch& batch,
                     const Streams& streams, const Activations& views, const Work& work,
                     bool saves) const;
  // What the layer makes of its own input, behind both parts.
  void forward_input(Stream& stream, const BlockWeights& weights, DType compute,
                     const TensorView& src, const TensorView& dst, const Activations& views,
                     const Work& work) const;
  // The gradient behind both parts, from that of the streams.
  TensorView backward_input_part(const BlockContext& context, const BlockWeights& weights,
                                 const TensorView& src, const TensorView& grad_dst,
                                 const TensorView& grad_src, const Activations& saved,
                                 const Gradients& pending, const Work& work) const;
  // From the gradient behind both parts to that before them, which may be in one memory.
  void backward_parts(const BlockContext& context, const BlockWeights& weights, const Batch& batch,
                      const TensorView& grad_dst, const Streams& streams, const Activations& saved,
                      const Gradients& pending, const Work& work) const;
  void share_keys(AttentionMemory& memory, const Streams& streams) const;
  // What later layers read of a stream, from src to dst; the other way, of gradients, from those of
  // dst to those of src.
  void hand_on(const BlockContext& context, const TensorView& src, const TensorView& dst) const;
  void hand_back(Stream& stream, const TensorView& grad_dst, const TensorView& grad_src) const;
  // What the feed-forward part reads of the residual stream.
  const TensorView& ffn_source(const TensorView& src, const Activations& views) const {
    return parallel_ || !attention_ ? src : views.x1;
  }
  // The experts of the layer, or null.
  const ExpertMlp* any_experts() const {
    return beside_ ? &beside_->experts() : experts_ ? &*experts_ : nullptr;
  }
  bool has_ffn() const { return mlp_ || experts_; }
  bool has_both() const { return attention_ && has_ffn(); }
  void make_ffn(const formats::ModelConfig& config, const LayerOptions& options,
                double residual_std);
  // Whether nothing stands between a product and the sum that it is a part of.
  bool adds_at_once(const Batch& batch) const {
    return !norms_after_ && batch.dropout.rate == 0 && residual_scale_ == 1.0f;
  }
  // Whether a norm at the entry can be left to the product that reads its result.
  bool leaves_norm(const NormLayer& norm) const { return norm.exists() && norm.is_rms(); }
  // The residual stream behind attention; what attention gives may go through dst.
  void forward_attention(const BlockContext& context, const BlockWeights& weights,
                         const Batch& batch, const Streams& streams, const Activations& views,
                         const Work& work, bool saves) const;
  // m in dst, or m plus what is to be added to it.
  struct FfnResult {
    TensorView dst;
    TensorView addend;  // or empty
    bool saves;
  };
  void forward_ffn(const BlockContext& context, const BlockWeights& weights, const TensorView& src,
                   const FfnResult& result, const Activations& views, const Work& work) const;
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
                          const Batch& batch, const Streams& streams, const Activations& saved,
                          const Gradients& pending, const Work& work) const;
  // W of attention but its output; n1 is computed anew.
  void attention_gradients(const BlockContext& context, const BlockWeights& weights,
                           const Batch& batch, const TensorView& src, const Activations& saved,
                           const Gradients& pending, const Work& work) const;

  // model/block.h lists the sites.
  uint64_t attention_site() const { return 1 + 2 * index_; }
  uint64_t ffn_site() const { return 2 + 2 * index_; }

  std::string name_;
  uint64_t index_;
  int64_t width_;
  float residual_scale_ = 1;
  bool parallel_ = false;  // both parts read src
  bool one_norm_ = false;  // and n2 is n1
  bool norms_before_ = true;
  bool norms_after_ = false;
  bool norms_sums_ = false;  // norms behind o and m are over x1 and dst

  std::vector<ParamSpec> params_;
  NormLayer norm1_, norm2_, norm1_after_, norm2_after_;
  std::unique_ptr<Attention> attention_;        // null: the layer has a feed-forward part alone
  std::optional<Projection> attention_output_;  // none where attention has its own
  std::optional<DenseMlp> mlp_;                 // this or experts_, or none
  std::optional<ExpertMlp> experts_;
  std::optional<ExpertsBeside> beside_;  // with mlp_
  StreamLayout layout_;
  bool window_ = false;
  bool shares_ = false;  // has the keys and values of an earlier layer
  bool gives_ = false;   // its own are those of later ones, too
  bool passes_[2] = {};  // keys on, of layers without window and of those with it
  std::optional<LayerInput> input_;
  std::optional<AltUpLayer> altup_;
  std::optional<Laurel> laurel_;
  std::optional<size_t> scale_;  // the parameter that dst is times at last
  PackedSizes packed_;
};

}  // namespace jige::model
