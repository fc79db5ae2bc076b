// The ends of a tower of Pixtral (image_parts.h); its projector is that of LLaVA, too.
//
//   PixtralEntry      dst [T, D] = norm(src Wpᵀ)
//   PixtralProjector  n = norm(src)                         [T, D]
//                     g = (n as [R, m²D]) Wmᵀ               or g = src, where nothing merges them
//                     dst [R, W] = act(g W1ᵀ + b) W2ᵀ + b
// What is between products is in the compute type.
// Internal to image_parts.cc. Threads: as ImagePart.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "model/image_parts.h"
#include "model/image_parts_patches.h"
#include "model/norm_layer.h"
#include "ops/elementwise.h"

namespace jige::model {

class PixtralEntry final : public PatchEntry {
 public:
  explicit PixtralEntry(const formats::ImageConfig& config);

  void forward(const ImageTask& task, const BlockWeights& weights, const TensorView& src,
               const TensorView& dst) const override;

 private:
  NormLayer norm_;
};

class PixtralProjector final : public ImagePart {
 public:
  explicit PixtralProjector(const formats::ImageConfig& config);

  int64_t workspace_bytes(int64_t patch_count, DType compute) const override;
  double forward_flops(double patch_count) const override;
  void forward(const ImageTask& task, const BlockWeights& weights, const TensorView& src,
               const TensorView& dst) const override;

 private:
  struct Work {
    TensorView normed;  // [T, D] compute type, or src in it
    TensorView merged;  // [R, D]
    TensorView hidden;  // [R, W]
  };
  Work place_work(Placement& at, int64_t patch_count, DType compute) const;
  std::vector<const Projection*> projections() const override;

  int64_t width_;
  int64_t merged_;  // m²
  ops::Activation activation_;
  NormLayer norm_;
  std::optional<Projection> merge_;  // with a norm
  Projection first_, second_;
};

LayerNames pixtral_layer_names(int64_t index);

}  // namespace jige::model
