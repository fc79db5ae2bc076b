// Head: the last block of a model, final norm and LM head, with the loss.
//
// Shapes: T tokens, D width, V vocabulary, C tokens a chunk.
//   n = norm(src);  logits = (n Wᵀ + b) · scale;  loss[t] = -log softmax(logits[t])[targets[t]]
// Where there is a cap, logits are cap · tanh((n Wᵀ + b) · scale / cap).
// Logits exist for one chunk of C tokens at a time: never a [T, V] tensor. F, X and W each compute
// their chunks' logits from src; forward_backward() does all three in one pass over the chunks and
// gives the same bits. Gradients of logits in bf16, half the size, are collected for G tokens, 2 C
// or on a GPU 4 C, before X and W run, so that the gradient of the weight is read and written less
// often. C and G depend on V, the type and the kind of device only, and results do not depend on
// them as far as ops promise.
// A head of the final norm alone (HeadKind) gives n, for embeddings of texts; it has no loss. Where
// layers end with a norm there is none here, and n is src.
// Of several residual streams src is what is made of them first (altup_ends.h).
// The block's dst: losses [T] f32, unweighted, 0 where there is no target.
// The gradient is that of Σ loss_weights[t] · loss[t] (weights of 1 where the batch has none).
// saved: 1/std of the norm, and what merging streams saves. pending: the gradient of n, and those
// of the streams' products. Threads: const.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "formats/model_config.h"
#include "model/altup_ends.h"
#include "model/block.h"
#include "model/norm_layer.h"
#include "model/placement.h"
#include "model/projection.h"
#include "model/stream_layout.h"

namespace jige::model {

// What forward_backward() does.
enum class HeadPass { kAll, kForwardAndInput };

// What a model ends with.
enum class HeadKind { kLanguageModel, kNormAlone };

class Head final : public Block {
 public:
  // `norm_name` and `linear_name` without ".weight". A tied head's linear has the embedding's name;
  // its value is the embedding's memory, its gradient its own until the end of a step (weights.h).
  // Without a linear's name the head is the norm alone.
  // `streams_name`: before the number of a stream's matrix, where there are several.
  Head(const formats::ModelConfig& config, const std::string& norm_name,
       const std::string& linear_name, const std::string& streams_name, DeviceKind device);

  const std::string& name() const override { return name_; }
  std::span<const ParamSpec> params() const override { return params_; }
  HeadKind kind() const { return linear_ ? HeadKind::kLanguageModel : HeadKind::kNormAlone; }
  // Index of the LM head's matrix among params(). REQUIRES: a head that has one.
  size_t linear_index() const { return linear_index_; }
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

  // Losses in dst, here and in the passes below. REQUIRES: batch.targets, and a matrix.
  void forward(const BlockContext& context, const BlockWeights& weights, const Batch& batch,
               const TensorView& src, const TensorView& dst,
               const BlockMemory& memory) const override;
  // grad_dst is not read: the gradient starts here, with batch.loss_weights.
  void backward_input(const BlockContext& context, const BlockWeights& weights, const Batch& batch,
                      const TensorView& src, const TensorView& grad_dst, const TensorView& grad_src,
                      const BlockMemory& memory) const override;
  void backward_weight(const BlockContext& context, const BlockWeights& weights, const Batch& batch,
                       const TensorView& src, const BlockMemory& memory) const override;
  double forward_flops(double token_count, double context_mean) const override;

  // F, X and W in one pass, or F and X where W comes later: each chunk's logits are computed once
  // instead of three times or twice. Needs saved and pending, and the workspace of
  // PackFor::kTraining.
  void forward_backward(const BlockContext& context, const BlockWeights& weights,
                        const Batch& batch, const TensorView& src, const TensorView& losses,
                        const TensorView& grad_src, const BlockMemory& memory,
                        HeadPass pass = HeadPass::kAll) const;

  // logits [R, V] f32 of R rows of the residual stream, for generation. Needs
  // logits_workspace_bytes. REQUIRES: a matrix.
  void logits(const BlockContext& context, const BlockWeights& weights, const TensorView& src,
              const TensorView& dst) const;
  int64_t logits_workspace_bytes(int64_t row_count, DType compute) const;

  // The normed rows [R, D] f32 of R rows of the residual stream. Needs logits_workspace_bytes.
  void normed(const BlockContext& context, const BlockWeights& weights, const TensorView& src,
              const TensorView& dst) const;

  int64_t chunk_tokens() const;  // C

 private:
  struct Work {
    TensorView normed;       // [G, D] compute
    TensorView logits;       // [C, V] f32
    TensorView grad_logits;  // [G, V] compute; logits itself in f32
    TensorView losses;       // [C] f32, where the caller wants none
    TensorView scratch;      // of W's product
    StreamMerge::Work merge;
    TensorView grad_merged;  // [T, D] f32
  };
  struct Outputs {
    TensorView losses, grad_src;
    bool input_gradient = false;
    bool weight_gradient = false;
  };
  Work place_work(Placement& at, int64_t token_count, DType compute, PackFor use) const;
  struct Saved {
    NormStats stats;
    StreamMerge::Saved merge;
  };
  Saved place_saved(Placement& at, int64_t token_count, DType compute) const;
  struct Pending {
    TensorView normed;  // [T, D] compute
    TensorView merge;
  };
  Pending place_pending(Placement& at, int64_t token_count, DType compute) const;
  int64_t gradient_tokens(DType compute) const;  // G
  // Of inference: what the norm reads of rows of the residual streams.
  TensorView norm_source(const BlockContext& context, const BlockWeights& weights, Placement& at,
                         const TensorView& src) const;
  // Logits from products, and gradients of products from those of logits.
  void scale_logits(Stream& stream, const TensorView& logits) const;
  // Layers that share keys add to their gradients, from here on.
  void start_key_gradients(Stream& stream, const TensorView& grad_src) const;
  // Of rows [begin, begin + rows of normed): losses, and where it is wanted the gradient at logits.
  void run_losses(const BlockContext& context, const BlockWeights& weights, const Batch& batch,
                  const Outputs& outputs, const Work& work, int64_t begin, const TensorView& normed,
                  const TensorView& grad_logits) const;
  void run_chunks(const BlockContext& context, const BlockWeights& weights, const Batch& batch,
                  const TensorView& src, const Outputs& outputs, const BlockMemory& memory) const;

  std::string name_ = "head";
  int64_t width_;
  int64_t vocab_size_;
  DeviceKind device_;
  float logit_scale_;
  double logit_cap_;  // 0: none
  StreamLayout layout_;
  std::vector<ParamSpec> params_;
  bool has_norm_;
  NormLayer norm_;
  std::optional<Projection> linear_;
  std::optional<StreamMerge> merge_;
  size_t linear_index_ = 0;
  PackedSizes packed_;
};

}  // namespace jige::model
