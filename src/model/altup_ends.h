// Where the residual streams of AltUp begin and end (Gemma 3n).
//
// Shapes: T tokens, D width, N streams.
//   StreamSplit  x_k = as large as e, of the direction of e Akᵀ     x_0 = e, what the embedding
//   gives StreamMerge  h = mean over k of x_k Ukᵀ, as large as x_0        x_0 as it is; h goes to
//   the norm
// Rows are made as large as others by ops/row_spread.h.
//
// saved: what products read, their results, h. pending: the gradients at the products.
// Threads: const.
#pragma once

#include <string>
#include <vector>

#include "formats/model_config.h"
#include "model/block.h"
#include "model/placement.h"
#include "model/projection.h"
#include "model/stream_layout.h"

namespace jige::model {

// The products of all streams but the first, each with a matrix [D, D].
class StreamEnd {
 public:
  // Appends "<prefix>.<k>.weight" for k from 0.
  StreamEnd(const formats::ModelConfig& config, const std::string& prefix, DeviceKind device,
            std::vector<ParamSpec>& params);

  const std::vector<Projection>& projections() const { return projections_; }
  void plan_forward(Placement& at, DType compute, ops::WeightFormat format);
  void plan_backward(Placement& at, DType compute, ops::WeightFormat format);

  // As Block has them.
  void pack(Stream& stream, const BlockWeights& weights, DType compute, PackFor use) const;
  void list_packs(const BlockWeights& weights, size_t param, DType compute, PackFor use,
                  std::vector<ops::PackPart>& packs) const;
  int64_t strip_bytes(DType compute) const;
  int64_t thread_scratch_bytes(int64_t token_count, DType compute, int threads,
                               bool frozen_base) const;
  double forward_flops(double token_count) const;

  struct Work {
    TensorView wide;  // [T, D] f32
    TensorView rows;  // [T, D] compute type
    TensorView scratch;
  };
  Work place_work(Placement& at, int64_t token_count, DType compute, bool training) const;
  TensorView place_pending(Placement& at, int64_t token_count, DType compute) const;

 protected:
  // Of stream k, from 1 on, in rows of all but the first.
  TensorView part(const TensorView& rows, int64_t k) const {
    return rows.column_range((k - 1) * width_, k * width_);
  }
  const Projection& projection(int64_t k) const { return projections_[static_cast<size_t>(k - 1)]; }
  void add_gradient(Stream& stream, const BlockWeights& weights, DType compute, int64_t k,
                    const TensorView& pending, const TensorView& src, GradientUse gradients,
                    const Work& work) const;

  StreamLayout layout_;
  int64_t width_;
  int64_t count_;  // N
  std::vector<Projection> projections_;
};

class StreamSplit : public StreamEnd {
 public:
  using StreamEnd::StreamEnd;

  struct Saved {
    TensorView rows;      // e, [T, D] compute type
    TensorView products;  // [T, (N-1) D] f32
  };
  Saved place_saved(Placement& at, int64_t token_count, DType compute) const;

  // The other streams of dst from the first.
  void forward(Stream& stream, const BlockWeights& weights, DType compute, const TensorView& dst,
               const Saved& saved) const;
  // grad_rows [T, D] f32, the gradient at e, from those of all streams.
  void backward_input(Stream& stream, const BlockWeights& weights, DType compute,
                      const TensorView& grad_rows, const TensorView& grad_dst, const Saved& saved,
                      const TensorView& pending, const Work& work) const;
  void backward_weight(Stream& stream, const BlockWeights& weights, DType compute,
                       GradientUse gradients, const Saved& saved, const TensorView& pending,
                       const Work& work) const;
};

class StreamMerge : public StreamEnd {
 public:
  using StreamEnd::StreamEnd;

  struct Saved {
    TensorView merged;    // h, [T, D] f32
    TensorView rows;      // x_1 …, [T, (N-1) D] compute type
    TensorView products;  // [T, (N-1) D] f32
  };
  Saved place_saved(Placement& at, int64_t token_count, DType compute) const;

  // saved.merged from the streams src.
  void forward(Stream& stream, const BlockWeights& weights, DType compute, const TensorView& src,
               const Saved& saved, const Work& work) const;
  // The gradients of all streams from that at h, grad_merged [T, D] f32, which it changes.
  void backward_input(Stream& stream, const BlockWeights& weights, DType compute,
                      const TensorView& grad_src, const TensorView& grad_merged,
                      const TensorView& src, const Saved& saved, const TensorView& pending,
                      const Work& work) const;
  void backward_weight(Stream& stream, const BlockWeights& weights, DType compute,
                       GradientUse gradients, const Saved& saved, const TensorView& pending,
                       const Work& work) const;
};

}  // namespace jige::model
