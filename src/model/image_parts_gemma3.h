// What makes rows of the language model in Gemma 3 of what its tower makes (image_parts.h); the
// tower's other end is SiglipEntry.
//
//   Gemma3Projector  n = norm(src)                            [T, D], the tower's last norm
//                    p = means of m² rows of n                [R, D]
//                    dst [R, W] = norm(p) Wi                  files hold Wi as [D, W]
// n and p are f32, what the product reads is in the compute type.
// Internal to image_parts.cc. Threads: as ImagePart.
#pragma once

#include <cstdint>
#include <vector>

#include "model/image_parts.h"
#include "model/norm_layer.h"

namespace jige::model {

class Gemma3Projector final : public ImagePart {
 public:
  explicit Gemma3Projector(const formats::ImageConfig& config);

  int64_t workspace_bytes(int64_t patch_count, DType compute) const override;
  double forward_flops(double patch_count) const override;
  void forward(const ImageTask& task, const BlockWeights& weights, const TensorView& src,
               const TensorView& dst) const override;

 private:
  struct Work {
    TensorView normed;  // [T, D] f32
    TensorView pooled;  // [R, D] f32
    TensorView rows;    // [R, D] compute type
  };
  Work place_work(Placement& at, int64_t patch_count, DType compute) const;
  std::vector<const Projection*> projections() const override { return {&product_}; }

  int64_t width_;
  int64_t merged_;  // m²
  NormLayer last_norm_, row_norm_;
  Projection product_;
};

}  // namespace jige::model
