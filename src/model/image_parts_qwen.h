// The ends of towers of Qwen2-VL, Qwen2.5-VL and Qwen3-VL (image_parts.h).
//
//   QwenEntry   dst [T, D] = x Wpᵀ [+ b]   x [T, frames K] = src, each colour once for every frame
//               [+ the learned positions, a grid of n x n that is stretched over the image]
//   QwenMerger  n = norm(src)              [T, D]; or norm(src as [R, m²D]) of a level behind the
//                                          first, each of which has products of its own
//               dst [R, W] = gelu((n as [R, m²D]) W1ᵀ + b) W2ᵀ + b
// What is between products is in the compute type.
// Internal to image_parts.cc. Threads: as ImagePart.
#pragma once

#include <cstdint>
#include <optional>
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
  int64_t side_;  // n
  Projection patches_;
  std::optional<size_t> positions_;  // among the parameters
};

class QwenMerger final : public ImagePart {
 public:
  explicit QwenMerger(const formats::ImageConfig& config);

  int64_t workspace_bytes(int64_t patch_count, DType compute) const override;
  double forward_flops(double patch_count) const override;
  void forward(const ImageTask& task, const BlockWeights& weights, const TensorView& src,
               const TensorView& dst) const override;

 private:
  struct Level {
    bool joins_first = false;  // the patches of a row before the norm
    NormLayer norm;
    Projection first, second;
  };
  struct Levels {
    std::vector<Level> all;
    void plan_forward(Placement& at, DType compute, ops::WeightFormat format);
    void plan_backward(Placement& at, DType compute, ops::WeightFormat format);
  };
  struct Work {
    TensorView normed;  // [T, D]
    TensorView hidden;  // [R, m²D]
  };
  Work place_work(Placement& at, int64_t patch_count, DType compute) const;
  std::vector<const Projection*> projections() const override;

  int64_t width_;
  int64_t merged_;  // m²
  Levels levels_;
};

LayerNames qwen_layer_names(const formats::ImageConfig& config, int64_t index);

}  // namespace jige::model
