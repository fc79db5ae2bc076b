#include "model/image_parts_gemma3.h"

#include <string>

#include "model/image_parts_siglip.h"
#include "model/image_pooling.h"

namespace jige::model {
namespace {

const std::string kProjector = "model.multi_modal_projector.";

// The projector's norm is one of the language model's.
formats::ModelConfig row_norm_config(const formats::ImageConfig& config) {
  formats::ModelConfig norm = config.tower;
  norm.norm = formats::NormKind::kRms;
  norm.norm_adds_one = true;
  norm.norm_eps = config.projector_norm_eps;
  return norm;
}

}  // namespace

Gemma3Projector::Gemma3Projector(const formats::ImageConfig& config)
    : width_(config.tower.hidden_size), merged_(config.merge * config.merge) {
  last_norm_ = NormLayer(config.tower, kGemma3Tower + "post_layernorm", width_, true, params_);
  row_norm_ =
      NormLayer(row_norm_config(config), kProjector + "mm_soft_emb_norm", width_, false, params_);
  const size_t weight = params_.size();
  product_ = Projection({.parts = {{kProjector + "mm_input_projection", config.text_width}},
                         .inputs = width_,
                         .transposed = true},
                        params_);
  params_[weight].name = kProjector + "mm_input_projection_weight";
  packed_ = PackedSizes(&product_);
}

Gemma3Projector::Work Gemma3Projector::place_work(Placement& at, int64_t patch_count,
                                                  DType compute) const {
  const int64_t rows = patch_count / merged_;
  Work work;
  work.normed = at.take(DType::kF32, Shape{patch_count, width_});
  work.pooled = at.take(DType::kF32, Shape{rows, width_});
  work.rows = at.take(compute, Shape{rows, width_});
  return work;
}

int64_t Gemma3Projector::workspace_bytes(int64_t patch_count, DType compute) const {
  Placement at;
  place_work(at, patch_count, compute);
  return at.peak_bytes();
}

double Gemma3Projector::forward_flops(double patch_count) const {
  return 2 * patch_count / static_cast<double>(merged_) * elements();
}

void Gemma3Projector::forward(const ImageTask& task, const BlockWeights& weights,
                              const TensorView& src, const TensorView& dst) const {
  Stream& stream = task.stream;
  Placement at(task.workspace);
  const Work work = place_work(at, src.rows(), task.compute);
  last_norm_.forward(stream, weights, work.normed, src, {});
  pool_patches(stream, work.pooled, work.normed, merged_, 1.0f);
  row_norm_.forward(stream, weights, work.rows, work.pooled, {});
  product_.forward(stream, weights, task.compute, {.dst = dst, .src = work.rows});
}

}  // namespace jige::model
