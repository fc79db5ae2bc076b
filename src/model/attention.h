// Attention: the part of a layer between its norm and the projection of its result, in the forms
// that families have (grouped_attention.h, latent_attention.h), what stands in its place in
// recurrent layers (delta_attention.h, kimi_delta.h, mamba1.h, mamba2.h, short_conv.h), or two of
// them side by side (parallel_attention.h).
//
// Shapes: T tokens, D width, C columns of the result.
//   dst [T, C] = attention(src [T, D]), compute type both
//   dst [T, D] f32 where the product behind it is part of it: has_output()
// Tasks, sizes and lifetimes of memory are as in model/block.h. Threads: const.
#pragma once

#include <vector>

#include "formats/model_config.h"
#include "model/block.h"
#include "model/placement.h"
#include "model/projection.h"

namespace jige::model {

// The parts of a task's memory that are the attention's.
struct AttentionMemory {
  TensorView saved;      // u8, or empty
  TensorView pending;    // u8, of X and W
  TensorView workspace;  // u8
  // What all projections of a block share.
  TensorView adapter_scratch;
  TensorView weight_scratch;  // of W's products
  ops::Dropout dropout = {};  // of adapters (projection.h)
  // Of layers that share keys: keys and values in the stream, [T, 2 G·d] f32, which the layer that
  // has them stores and the others read, and their gradients, the other way. Empty in inference.
  TensorView shared;
  TensorView grad_shared;
  // Of F: what makes src and is still to be done, or null. Only where may_norm().
  const ops::NormForward* norm = nullptr;
};

class Attention {
 public:
  virtual ~Attention() = default;

  virtual int64_t columns() const = 0;  // C
  // Whether dst is what the residual stream gets; else the layer has a product behind it.
  virtual bool has_output() const { return false; }
  virtual std::vector<const Projection*> projections() const = 0;
  virtual void plan_forward(Placement& at, DType compute, ops::WeightFormat format) = 0;
  virtual void plan_backward(Placement& at, DType compute, ops::WeightFormat format) = 0;
  virtual void pack(Stream& stream, const BlockWeights& weights, DType compute,
                    PackFor use) const = 0;

  virtual int64_t saved_bytes(int64_t token_count, DType compute) const = 0;
  virtual int64_t pending_bytes(int64_t token_count, DType compute) const = 0;
  virtual int64_t workspace_bytes(int64_t token_count, DType compute, PackFor use) const = 0;
  // Bytes of BlockContext::gathered, as Block::gathered_bytes().
  virtual int64_t gathered_bytes(int64_t /*row_count*/, DType /*compute*/) const { return 0; }
  // Of scores and weighed values; projections aside.
  virtual int64_t thread_scratch_bytes(int64_t token_count) const = 0;
  virtual double forward_flops(double token_count, double context_mean) const = 0;

  // Whether forward() may be given a source that its norm is still to make.
  virtual bool may_norm() const { return false; }
  virtual void forward(const BlockContext& context, const BlockWeights& weights, const Batch& batch,
                       const TensorView& src, const TensorView& dst,
                       const AttentionMemory& memory) const = 0;
  // grad_src from grad_dst, both of the compute type; `dst` as forward left it, or empty where
  // has_output().
  virtual void backward_input(const BlockContext& context, const BlockWeights& weights,
                              const Batch& batch, const TensorView& dst, const TensorView& grad_dst,
                              const TensorView& grad_src, const AttentionMemory& memory) const = 0;
  // Whether backward_weight reads src, which is empty where it does not.
  virtual bool wants_source(const BlockWeights& weights) const = 0;
  virtual void backward_weight(const BlockContext& context, const BlockWeights& weights,
                               const Batch& batch, const TensorView& src,
                               const AttentionMemory& memory) const = 0;
};

// The heads of keys and values that the cache of a layer holds, and their width.
struct CacheShape {
  int64_t kv_head_count = 0;
  int64_t head_dim = 0;
};
CacheShape cache_shape(const formats::ModelConfig& config, int64_t layer);
// Whether the layer has such a cache: every one with attention, be it beside a recurrent part, and
// keys of its own; but none of a model that looks ahead, whose texts run whole.
bool has_cache(const formats::ModelConfig& config, int64_t layer);
// Bytes of so many blocks of it; none where it has none.
int64_t cache_bytes(const formats::ModelConfig& config, int64_t layer, DType dtype,
                    int64_t block_count);

// What a sequence has in a recurrent layer, in place of a cache or beside it, in numbers of
// SequenceStates (block.h); of short convolutions no matrices; nothing where no layer is recurrent.
struct StateShape {
  int64_t inputs = 0;
  int64_t matrices = 0;
};
StateShape state_shape(const formats::ModelConfig& config);

// What attention scores are multiplied with in a layer.
double score_scale(const formats::ModelConfig& config, int64_t layer);

}  // namespace jige::model
