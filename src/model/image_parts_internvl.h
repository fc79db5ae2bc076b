// What makes rows of the language model in InternVL of what its tower makes, and the names of its
// layers (image_parts.h); the tower's other end is ClassEntry.
//
//   InternVlProjector  n = norm(src as [R, m²D])
//                      dst [R, W] = act(n W1ᵀ + b1) W2ᵀ + b2
// What is between products is in the compute type.
// Internal to image_parts*.cc. Threads: as ImagePart.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "model/image_parts.h"
#include "model/norm_layer.h"
#include "ops/elementwise.h"

namespace jige::model {

inline const std::string kInternVlTower = "model.vision_tower.";

class InternVlProjector final : public ImagePart {
 public:
  explicit InternVlProjector(const formats::ImageConfig& config);

  int64_t workspace_bytes(int64_t patch_count, DType compute) const override;
  double forward_flops(double patch_count) const override;
  void forward(const ImageTask& task, const BlockWeights& weights, const TensorView& src,
               const TensorView& dst) const override;

 private:
  struct Work {
    TensorView normed;  // [R, m²D] compute type
    TensorView hidden;  // [R, W] compute type
  };
  Work place_work(Placement& at, int64_t patch_count, DType compute) const;
  std::vector<const Projection*> projections() const override { return {&first_, &second_}; }

  int64_t width_;
  int64_t merged_;  // m²
  ops::Activation activation_;
  NormLayer norm_;
  Projection first_, second_;
};

LayerNames internvl_layer_names(int64_t index);

}  // namespace jige::model
