#include "model/image_parts_gemma3.h"

#include <string>

#include "ops/elementwise.h"

namespace jige::model {
namespace {

constexpr int64_t kSiglipColours = 3;
const std::string kSiglipTower = "model.vision_tower.vision_model.";
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

SiglipEntry::SiglipEntry(const formats::ImageConfig& config) {
  const int64_t patch = config.patch_size;
  const int64_t width = config.tower.hidden_size;
  const std::string at = kSiglipTower + "embeddings.";
  patches_ = Projection({.parts = {{at + "patch_embedding", width}},
                         .inputs = kSiglipColours * patch * patch,
                         .bias = true},
                        params_);
  params_.front().as_kernels = Shape{width, kSiglipColours, patch, patch};
  positions_ = params_.size();
  params_.push_back(
      {.name = at + "position_embedding.weight", .shape = Shape{config.patches_max(), width}});
  packed_ = PackedSizes(&patches_);
}

int64_t SiglipEntry::workspace_bytes(int64_t patch_count, DType compute) const {
  Placement at;
  if (compute != DType::kF32) at.take(compute, Shape{patch_count, patches_.inputs()});
  return at.peak_bytes();
}

double SiglipEntry::forward_flops(double patch_count) const { return 2 * patch_count * elements(); }

void SiglipEntry::forward(const ImageTask& task, const BlockWeights& weights, const TensorView& src,
                          const TensorView& dst) const {
  TensorView rows = src;
  if (task.compute != DType::kF32) {
    Placement at(task.workspace);
    rows = at.take(task.compute, src.shape);
    ops::scale(task.stream, rows, src, 1.0f);
  }
  patches_.forward(task.stream, weights, task.compute, {.dst = dst, .src = rows});
  ops::add(task.stream, dst, dst, weights.params[positions_].value.row_range(0, src.rows()));
}

Gemma3Projector::Gemma3Projector(const formats::ImageConfig& config)
    : width_(config.tower.hidden_size), merged_(config.merge * config.merge) {
  last_norm_ = NormLayer(config.tower, kSiglipTower + "post_layernorm", width_, true, params_);
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
  // The patches of a row lie one behind the other: as columns of one.
  const TensorView joined =
      TensorView::of(work.normed.data, DType::kF32, Shape{work.pooled.rows(), merged_ * width_});
  const auto patch = [&](int64_t i) { return joined.column_range(i * width_, (i + 1) * width_); };
  ops::scale(stream, work.pooled, patch(0), 1.0f);
  for (int64_t i = 1; i < merged_; ++i) ops::add(stream, work.pooled, work.pooled, patch(i));
  ops::scale(stream, work.pooled, work.pooled, 1.0f / static_cast<float>(merged_));
  row_norm_.forward(stream, weights, work.rows, work.pooled, {});
  product_.forward(stream, weights, task.compute, {.dst = dst, .src = work.rows});
}

LayerNames siglip_layer_names(int64_t index) {
  const std::string at = kSiglipTower + "encoder.layers." + std::to_string(index) + ".";
  LayerNames names;
  names.norm1 = at + "layer_norm1";
  names.attention.qkv = {at + "self_attn.q_proj", at + "self_attn.k_proj", at + "self_attn.v_proj"};
  names.attention_output = at + "self_attn.out_proj";
  names.norm2 = at + "layer_norm2";
  names.ffn_input = {at + "mlp.fc1"};
  names.ffn_output = at + "mlp.fc2";
  return names;
}

}  // namespace jige::model
