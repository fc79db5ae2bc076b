// The entry of towers that have a class token: those of CLIP and InternVL (image_parts.h).
//
//   ClassEntry  dst [T + 1, D] = norm(e)     CLIP; InternVL: e itself
//               e [t] = src[t] Wpᵀ + b + P[t + 1],  e [T] = c + P[0]      CLIP without b
// P: learned positions of T patches and of the class token c, which stands behind the patches here
// and in front of them in files: layers have no other positions.
// Internal to image_parts*.cc. Threads: as ImagePart.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "model/image_parts.h"
#include "model/norm_layer.h"

namespace jige::model {

class ClassEntry final : public ImagePart {
 public:
  explicit ClassEntry(const formats::ImageConfig& config);

  int64_t workspace_bytes(int64_t patch_count, DType compute) const override;
  double forward_flops(double patch_count) const override;
  void forward(const ImageTask& task, const BlockWeights& weights, const TensorView& src,
               const TensorView& dst) const override;

 private:
  std::vector<const Projection*> projections() const override { return {&patches_}; }

  Projection patches_;
  size_t class_ = 0;  // among the parameters, the positions behind it
  NormLayer norm_;    // where there is one
};

}  // namespace jige::model
