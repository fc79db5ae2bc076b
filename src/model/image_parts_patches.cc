#include "model/image_parts_patches.h"

#include "ops/elementwise.h"

namespace jige::model {

PatchEntry::PatchEntry(const formats::ImageConfig& config, const std::string& name, bool bias,
                       const std::string& norm) {
  constexpr int64_t kColours = 3;
  const int64_t patch = config.patch_size;
  const int64_t width = config.tower.hidden_size;
  patches_ = Projection(
      {.parts = {{name, width}}, .inputs = kColours * patch * patch, .bias = bias}, params_);
  params_.front().as_kernels = Shape{width, kColours, patch, patch};
  packed_ = PackedSizes(&patches_);
  if (!norm.empty()) norm_ = NormLayer(config.tower, norm, patches_.inputs(), true, params_);
}

// None where the patches themselves are multiplied.
TensorView PatchEntry::place_rows(Placement& at, int64_t patch_count, DType compute) const {
  if (compute == DType::kF32 && !norm_.exists()) return {};
  return at.take(compute, Shape{patch_count, patches_.inputs()});
}

int64_t PatchEntry::workspace_bytes(int64_t patch_count, DType compute) const {
  Placement at;
  place_rows(at, patch_count, compute);
  return at.peak_bytes();
}

double PatchEntry::forward_flops(double patch_count) const { return 2 * patch_count * elements(); }

void PatchEntry::multiply(const ImageTask& task, const BlockWeights& weights, const TensorView& src,
                          const TensorView& dst) const {
  Placement at(task.workspace);
  const TensorView rows = place_rows(at, src.rows(), task.compute);
  if (norm_.exists()) {
    norm_.forward(task.stream, weights, rows, src, {});
  } else if (rows) {
    ops::scale(task.stream, rows, src, 1.0f);
  }
  patches_.forward(task.stream, weights, task.compute, {.dst = dst, .src = rows ? rows : src});
}

}  // namespace jige::model
