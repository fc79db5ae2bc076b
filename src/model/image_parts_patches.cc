#include "model/image_parts_patches.h"

#include "ops/elementwise.h"

namespace jige::model {

PatchEntry::PatchEntry(const formats::ImageConfig& config, const std::string& name, bool bias) {
  constexpr int64_t kColours = 3;
  const int64_t patch = config.patch_size;
  const int64_t width = config.tower.hidden_size;
  patches_ = Projection(
      {.parts = {{name, width}}, .inputs = kColours * patch * patch, .bias = bias}, params_);
  params_.front().as_kernels = Shape{width, kColours, patch, patch};
  packed_ = PackedSizes(&patches_);
}

int64_t PatchEntry::workspace_bytes(int64_t patch_count, DType compute) const {
  Placement at;
  if (compute != DType::kF32) at.take(compute, Shape{patch_count, patches_.inputs()});
  return at.peak_bytes();
}

double PatchEntry::forward_flops(double patch_count) const { return 2 * patch_count * elements(); }

void PatchEntry::multiply(const ImageTask& task, const BlockWeights& weights, const TensorView& src,
                          const TensorView& dst) const {
  TensorView rows = src;
  if (task.compute != DType::kF32) {
    Placement at(task.workspace);
    rows = at.take(task.compute, src.shape);
    ops::scale(task.stream, rows, src, 1.0f);
  }
  patches_.forward(task.stream, weights, task.compute, {.dst = dst, .src = rows});
}

}  // namespace jige::model
