// What most entries of towers begin with: a matrix that patches are multiplied with
// (image_parts.h).
//
//   dst [T, D] = src Wpᵀ + b     b where there is one
//
// Src is brought to the compute type first. Internal to image_parts*.cc. Threads: as ImagePart.
#pragma once

#include <string>
#include <vector>

#include "model/image_parts.h"

namespace jige::model {

class PatchEntry : public ImagePart {
 public:
  int64_t workspace_bytes(int64_t patch_count, DType compute) const final;
  double forward_flops(double patch_count) const final;

 protected:
  // The matrix and, with `bias`, b are the first parameters.
  PatchEntry(const formats::ImageConfig& config, const std::string& name, bool bias);
  void multiply(const ImageTask& task, const BlockWeights& weights, const TensorView& src,
                const TensorView& dst) const;

 private:
  std::vector<const Projection*> projections() const final { return {&patches_}; }

  Projection patches_;
};

}  // namespace jige::model
