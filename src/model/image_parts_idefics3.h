// What makes rows of the language model in Idefics3 and SmolVLM of what their tower makes
// (image_parts.h); the tower's other end is SiglipEntry.
//
//   Idefics3Projector  n = norm(src)                   [T, D], the tower's last norm
//                      dst [R, W] = (n as [R, m²D]) Wcᵀ
// n is in the compute type.
// Internal to image_parts.cc. Threads: as ImagePart.
#pragma once

#include <cstdint>
#include <vector>

#include "model/image_parts.h"
#include "model/norm_layer.h"

namespace jige::model {

class Idefics3Projector final : public ImagePart {
 public:
  explicit Idefics3Projector(const formats::ImageConfig& config);

  int64_t workspace_bytes(int64_t patch_count, DType compute) const override;
  double forward_flops(double patch_count) const override;
  void forward(const ImageTask& task, const BlockWeights& weights, const TensorView& src,
               const TensorView& dst) const override;

 private:
  std::vector<const Projection*> projections() const override { return {&product_}; }

  int64_t width_;
  int64_t merged_;  // m²
  NormLayer norm_;
  Projection product_;
};

}  // namespace jige::model
