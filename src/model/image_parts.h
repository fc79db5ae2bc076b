// The ends of a tower that reads images: what makes its residual stream of patches, and what makes
// rows of the language model of that.
//
// Shapes: T patches, K numbers of one, D width of the tower, m² patches that become one row, R =
// T/m² rows, W width of the language model.
//   PatchEntry      dst [T, D] f32 = norm(src Wpᵀ)        src [T, K] f32
//   ImageProjector  n = norm(src)                         src [T, D] f32, whose m² patches of a row
//                                                         stand one behind the other
//                   g = (n as [R, m²D]) Wmᵀ               or g = src, where nothing merges them
//                   dst [R, W] f32 = act(g W1ᵀ + b) W2ᵀ + b
// What is between products is in the compute type. For inference alone. As blocks (block.h) they
// own neither memory nor parameters. Threads: const; tasks are asynchronous on the stream.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "formats/image_config.h"
#include "model/block.h"
#include "model/norm_layer.h"
#include "model/projection.h"
#include "ops/elementwise.h"

namespace jige::model {

// The memory and the stream of a task, as in BlockContext.
struct ImageTask {
  Stream& stream;
  DType compute = DType::kF32;
  TensorView workspace;  // u8, workspace_bytes(T)
};

class PatchEntry {
 public:
  explicit PatchEntry(const formats::ImageConfig& config);

  std::span<const ParamSpec> params() const { return params_; }
  int64_t packed_bytes(DType compute) const;
  void pack(Stream& stream, const BlockWeights& weights, DType compute) const;
  int64_t workspace_bytes(int64_t patch_count, DType compute) const;
  double forward_flops(double patch_count) const;
  void forward(const ImageTask& task, const BlockWeights& weights, const TensorView& src,
               const TensorView& dst) const;

 private:
  std::vector<ParamSpec> params_;
  Projection patches_;
  NormLayer norm_;
  PackedSizes packed_;
};

class ImageProjector {
 public:
  explicit ImageProjector(const formats::ImageConfig& config);

  std::span<const ParamSpec> params() const { return params_; }
  int64_t packed_bytes(DType compute) const;
  void pack(Stream& stream, const BlockWeights& weights, DType compute) const;
  int64_t workspace_bytes(int64_t patch_count, DType compute) const;
  double forward_flops(double patch_count) const;
  void forward(const ImageTask& task, const BlockWeights& weights, const TensorView& src,
               const TensorView& dst) const;

 private:
  struct Work {
    TensorView normed;  // [T, D] compute type, or src in it
    TensorView merged;  // [R, D]
    TensorView hidden;  // [R, W]
  };
  Work place_work(Placement& at, int64_t patch_count, DType compute) const;
  std::vector<const Projection*> projections() const;

  int64_t width_;
  int64_t merged_;  // m²
  ops::Activation activation_;
  std::vector<ParamSpec> params_;
  NormLayer norm_;
  std::optional<Projection> merge_;  // with a norm
  Projection first_, second_;
  PackedSizes packed_;
};

}  // namespace jige::model
