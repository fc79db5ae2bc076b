// The ends of a tower of Gemma 4, and the names of its layers (image_parts.h).
//
//   Gemma4Entry         dst [T, D] = src Wpᵀ + P
//   Gemma4UnifiedEntry  dst [T, D] = n3(n2(n1(src) Wpᵀ + b) + P)    three LayerNorms
//   Gemma4Projector     p = √D · means of m² rows of src     [R, D], or (p - b) ∘ s of them; where
//                                                            there are no layers src itself
//                       dst [R, W] = norm(p) Wiᵀ             a norm without weights
// Files hold what patches are multiplied with (Wp, n1) with the colours of a pixel side by side. P
// of a patch is that of its column plus that of its row, of N learned ones each. p is f32, what the
// product reads is in the compute type.
// Internal to image_parts.cc. Threads: as ImagePart.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "model/image_parts.h"
#include "model/image_parts_patches.h"
#include "model/norm_layer.h"

namespace jige::model {

class Gemma4Entry final : public PatchEntry {
 public:
  explicit Gemma4Entry(const formats::ImageConfig& config);

  void forward(const ImageTask& task, const BlockWeights& weights, const TensorView& src,
               const TensorView& dst) const override;

 private:
  int64_t side_;          // N
  size_t positions_ = 0;  // their place among the parameters: those of columns, then those of rows
};

class Gemma4UnifiedEntry final : public PatchEntry {
 public:
  explicit Gemma4UnifiedEntry(const formats::ImageConfig& config);

  void forward(const ImageTask& task, const BlockWeights& weights, const TensorView& src,
               const TensorView& dst) const override;

 private:
  NormLayer product_norm_;    // n2
  size_t positions_ = 0;      // their place among the parameters, column and row in turns
  NormLayer positions_norm_;  // n3
};

class Gemma4Projector final : public ImagePart {
 public:
  explicit Gemma4Projector(const formats::ImageConfig& config);

  int64_t workspace_bytes(int64_t patch_count, DType compute) const override;
  double forward_flops(double patch_count) const override;
  void forward(const ImageTask& task, const BlockWeights& weights, const TensorView& src,
               const TensorView& dst) const override;

 private:
  struct Work {
    TensorView pooled;  // [R, D] f32
    TensorView rows;    // [R, D] compute type
  };
  Work place_work(Placement& at, int64_t patch_count, DType compute) const;
  std::vector<const Projection*> projections() const override { return {&product_}; }

  int64_t width_;
  int64_t merged_;               // m²
  float factor_;                 // of the means
  std::optional<size_t> shift_;  // b among the parameters; s follows
  NormLayer norm_;
  Projection product_;
};

LayerNames gemma4_layer_names(int64_t index);

}  // namespace jige::model
