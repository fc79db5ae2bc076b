// What most entries of towers begin with: a matrix that patches are multiplied with
// (image_parts.h).
//
//   dst [T, D] = n(src) Wpᵀ + b     n, a norm, and b where there are such
//
// N(src) is brought to the compute type first. Internal to image_parts*.cc. Threads: as ImagePart.
#pragma once

#include <string>
#include <vector>

#include "model/image_parts.h"
#include "model/norm_layer.h"

namespace jige::model {

class PatchEntry : public ImagePart {
 public:
  int64_t workspace_bytes(int64_t patch_count, DType compute) const final;
  double forward_flops(double patch_count) const final;

 protected:
  // The matrix and, with `bias`, b are the first parameters; with `norm`, a prefix, its weight and
  // bias follow.
  PatchEntry(const formats::ImageConfig& config, const std::string& name, bool bias,
             const std::string& norm = "");
  void multiply(const ImageTask& task, const BlockWeights& weights, const TensorView& src,
                const TensorView& dst) const;

 private:
  std::vector<const Projection*> projections() const final { return {&patches_}; }

  TensorView place_rows(Placement& at, int64_t patch_count, DType compute) const;

  Projection patches_;
  NormLayer norm_;  // where there is one
};

}  // namespace jige::model
