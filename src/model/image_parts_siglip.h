// The entry of a tower of SigLIP, and the names of its layers (image_parts.h).
//
//   SiglipEntry  dst [T, D] = src Wpᵀ + b + P     P [T, D]: of N x N learned positions, those of an
//                                                 image of N x N patches; else each patch of one
//                                                 of R x C has row ⌊y N/R⌋ and column ⌊x N/C⌋
//
// Transformers finds that place in floats, which at some sides miss it by one, other ones on other
// machines; at those of published models (26, 27, 32) they do not.
// Internal to image_parts*.cc. Threads: as ImagePart.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "model/image_parts_patches.h"

namespace jige::model {

class SiglipEntry final : public PatchEntry {
 public:
  // Of the tower whose parameters' names begin so.
  SiglipEntry(const formats::ImageConfig& config, const std::string& tower);

  void forward(const ImageTask& task, const BlockWeights& weights, const TensorView& src,
               const TensorView& dst) const override;

 private:
  int64_t side_;          // N
  size_t positions_ = 0;  // their place among the parameters
};

LayerNames siglip_layer_names(const std::string& tower, int64_t index);

// Where Gemma 3 and Idefics3 have it.
inline const std::string kGemma3Tower = "model.vision_tower.vision_model.";
inline const std::string kIdefics3Tower = "model.vision_model.";

}  // namespace jige::model
