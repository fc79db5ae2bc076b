#include "model/image_parts_idefics3.h"

#include "model/image_parts_siglip.h"

namespace jige::model {

Idefics3Projector::Idefics3Projector(const formats::ImageConfig& config)
    : width_(config.tower.hidden_size), merged_(config.merge * config.merge) {
  norm_ = NormLayer(config.tower, kIdefics3Tower + "post_layernorm", width_, true, params_);
  product_ = Projection({.parts = {{"model.connector.modality_projection.proj", config.text_width}},
                         .inputs = merged_ * width_},
                        params_);
  packed_ = PackedSizes(&product_);
}

int64_t Idefics3Projector::workspace_bytes(int64_t patch_count, DType compute) const {
  Placement at;
  at.take(compute, Shape{patch_count, width_});
  return at.peak_bytes();
}

double Idefics3Projector::forward_flops(double patch_count) const {
  return 2 * patch_count / static_cast<double>(merged_) * elements();
}

void Idefics3Projector::forward(const ImageTask& task, const BlockWeights& weights,
                                const TensorView& src, const TensorView& dst) const {
  Placement at(task.workspace);
  const TensorView normed = at.take(task.compute, src.shape);
  norm_.forward(task.stream, weights, normed, src, {});
  const TensorView joined = normed.reshaped(Shape{src.rows() / merged_, merged_ * width_});
  product_.forward(task.stream, weights, task.compute, {.dst = dst, .src = joined});
}

}  // namespace jige::model
