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

#include "model/image_parts_patches.h"
#include "model/norm_layer.h"

namespace jige::model {

class ClassEntry final : public PatchEntry {
 public:
  explicit ClassEntry(const formats::ImageConfig& config);

  void forward(const ImageTask& task, const BlockWeights& weights, const TensorView& src,
               const TensorView& dst) const override;

 private:
  size_t class_ = 0;  // among the parameters, the positions behind it
  NormLayer norm_;    // where there is one
};

}  // namespace jige::model
