// The ends of a tower of Qwen2.5-VL (image_parts.h).
//
//   QwenEntry   dst [T, D] = x Wpᵀ         x [T, frames K] = src, each colour once for every frame
//   QwenMerger  n = norm(src)              [T, D]
//               dst [R, W] = gelu((n as [R, m²D]) W1ᵀ + b) W2ᵀ + b
// What is between products is in the compute type.
// Internal to image_parts.cc. Threads: as ImagePart.
#pragma once

#include <cstdint>
#include <vector>

#include "model/image_parts.h"
#include "model/norm_layer.h"

namespace jige::model {

class QwenEntry final : public ImagePart {
 public:
  explicit QwenEntry(const formats::ImageConfig& config);

  int64_t workspace_bytes(int64_t patch_count, DType compute) const override;
  double forward_flops(double patch_count) const override;
  void forward(const ImageTask& task, const BlockWeights& weights, const TensorView& src,
               const TensorView& dst) const override;

 private:
  std::vector<const Projection*> projections() const override { return {&patches_}; }

  int64_t pixels_;  // p²
  int64_t frames_;
  Projection patches_;
};

class QwenMerger final : public ImagePart {
 public:
  explicit QwenMerger(const formats::ImageConfig& config);

  int64_t workspace_bytes(int64_t patch_count, DType compute) const override;
  double forward_flops(double patch_count) const override;
  void forward(const ImageTask& task, const BlockWeights& weights, const TensorView& src,
               const TensorView& dst) const override;

 private:
  struct Work {
    TensorView normed;  // [T, D]
    TensorView hidden;  // [R, m²D]
  };
  Work place_work(Placement& at, int64_t patch_count, DType compute) const;
  std::vector<const Projection*> projections() const override { return {&first_, &second_}; }

  int64_t width_;
  int64_t merged_;  // m²
  NormLayer norm_;
  Projection first_, second_;
};

LayerNames qwen_layer_names(int64_t index);

}  // namespace jige::model
