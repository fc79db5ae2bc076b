#include "model/image_parts_gemma4.h"

#include <cmath>
#include <string>
#include <utility>

#include "model/image_pooling.h"
#include "ops/add_blended_rows.h"
#include "ops/elementwise.h"

namespace jige::model {
namespace {

constexpr int64_t kPixelColours = 3;
const std::string kTower = "model.vision_tower.";
const std::string kEmbedder = "model.vision_embedder.";

// Where a table has the positions of columns and rows: that of the first row, and how far it is
// from one to the next.
struct PositionTable {
  int64_t first_row, step;
};

// Of rows x columns patches.
std::vector<ops::Blend> column_and_row_positions(int64_t rows, int64_t columns,
                                                 const PositionTable& table) {
  std::vector<ops::Blend> positions;
  for (int64_t y = 0; y < rows; ++y) {
    for (int64_t x = 0; x < columns; ++x) {
      const auto column = static_cast<int32_t>(x * table.step);
      const auto row = static_cast<int32_t>(table.first_row + y * table.step);
      positions.push_back({.rows = {column, row, column, column}, .weights = {1, 1, 0, 0}});
    }
  }
  return positions;
}

// How files have the numbers of a patch.
StoredRows colours_side_by_side(const formats::ImageConfig& config) {
  return {.turns = config.patch_size * config.patch_size,
          .parts = std::vector<int64_t>(kPixelColours, 1)};
}

}  // namespace

Gemma4Entry::Gemma4Entry(const formats::ImageConfig& config)
    : PatchEntry(config, kTower + "patch_embedder.input_proj", false),
      side_(config.positions_side) {
  params_.front().as_kernels.reset();
  params_.front().stored_columns = colours_side_by_side(config);
  positions_ = params_.size();
  const int64_t width = config.tower.hidden_size;
  params_.push_back({.name = kTower + "patch_embedder.position_embedding_table",
                     .shape = Shape{2 * side_, width},
                     .as_kernels = Shape{2, side_, width}});
}

void Gemma4Entry::forward(const ImageTask& task, const BlockWeights& weights, const TensorView& src,
                          const TensorView& dst) const {
  multiply(task, weights, src, dst);
  ops::add_blended_rows(
      task.stream, dst, weights.params[positions_].value,
      column_and_row_positions(src.rows() / task.patch_columns, task.patch_columns,
                               {.first_row = side_, .step = 1}));
}

Gemma4UnifiedEntry::Gemma4UnifiedEntry(const formats::ImageConfig& config)
    : PatchEntry(config, kEmbedder + "patch_dense", true, kEmbedder + "patch_ln1") {
  params_.front().as_kernels.reset();
  params_.front().stored_columns = colours_side_by_side(config);
  for (size_t i = 2; i < params_.size(); ++i) {  // n1, behind the matrix and b
    params_[i].stored_rows = colours_side_by_side(config);
  }
  const int64_t width = config.tower.hidden_size;
  product_norm_ = NormLayer(config.tower, kEmbedder + "patch_ln2", width, true, params_);
  positions_ = params_.size();
  params_.push_back({.name = kEmbedder + "pos_embedding",
                     .shape = Shape{2 * config.positions_side, width},
                     .as_kernels = Shape{config.positions_side, 2, width}});
  positions_norm_ = NormLayer(config.tower, kEmbedder + "pos_norm", width, true, params_);
}

void Gemma4UnifiedEntry::forward(const ImageTask& task, const BlockWeights& weights,
                                 const TensorView& src, const TensorView& dst) const {
  multiply(task, weights, src, dst);
  product_norm_.forward(task.stream, weights, dst, dst, {});
  ops::add_blended_rows(task.stream, dst, weights.params[positions_].value,
                        column_and_row_positions(src.rows() / task.patch_columns,
                                                 task.patch_columns, {.first_row = 1, .step = 2}));
  positions_norm_.forward(task.stream, weights, dst, dst, {});
}

Gemma4Projector::Gemma4Projector(const formats::ImageConfig& config)
    : width_(config.tower.hidden_size),
      merged_(config.merge * config.merge),
      factor_(config.tower.layer_count > 0 ? std::sqrt(static_cast<float>(width_)) : 1.0f) {
  if (config.standardises) {
    shift_ = params_.size();
    params_.push_back({.name = kTower + "std_bias", .shape = Shape{width_}});
    params_.push_back({.name = kTower + "std_scale", .shape = Shape{width_}});
  }
  formats::ModelConfig norm = config.tower;
  norm.norm = formats::NormKind::kRms;
  norm.norm_eps = config.projector_norm_eps;
  norm_ = NormLayer(norm, "", width_, false, params_);
  product_ = Projection(
      {.parts = {{"model.embed_vision.embedding_projection", config.text_width}}, .inputs = width_},
      params_);
  packed_ = PackedSizes(&product_);
}

Gemma4Projector::Work Gemma4Projector::place_work(Placement& at, int64_t patch_count,
                                                  DType compute) const {
  const int64_t rows = patch_count / merged_;
  return {.pooled = at.take(DType::kF32, Shape{rows, width_}),
          .rows = at.take(compute, Shape{rows, width_})};
}

int64_t Gemma4Projector::workspace_bytes(int64_t patch_count, DType compute) const {
  Placement at;
  place_work(at, patch_count, compute);
  return at.peak_bytes();
}

double Gemma4Projector::forward_flops(double patch_count) const {
  return 2 * patch_count / static_cast<double>(merged_) * elements();
}

void Gemma4Projector::forward(const ImageTask& task, const BlockWeights& weights,
                              const TensorView& src, const TensorView& dst) const {
  Stream& stream = task.stream;
  Placement at(task.workspace);
  const Work work = place_work(at, src.rows(), task.compute);
  pool_patches(stream, work.pooled, src, merged_, shift_ ? -factor_ : factor_);
  if (shift_) {
    // As -((b - p) ∘ s): large numbers cancel before there is anything to round.
    const auto number = [&](size_t i) { return weights.params[*shift_ + i].value; };
    ops::scale_columns(stream, work.pooled, work.pooled, {}, number(0));
    ops::scale_columns(stream, work.pooled, work.pooled, number(1), {});
    ops::scale(stream, work.pooled, work.pooled, -1.0f);
  }
  norm_.forward(stream, weights, work.rows, work.pooled, {});
  product_.forward(stream, weights, task.compute, {.dst = dst, .src = work.rows});
}

LayerNames gemma4_layer_names(int64_t index) {
  const std::string at = kTower + "encoder.layers." + std::to_string(index) + ".";
  LayerNames names;
  names.norm1 = at + "input_layernorm";
  names.norm1_after = at + "post_attention_layernorm";
  names.attention.qkv = {at + "self_attn.q_proj.linear", at + "self_attn.k_proj.linear",
                         at + "self_attn.v_proj.linear"};
  names.attention.q_norm = at + "self_attn.q_norm";
  names.attention.k_norm = at + "self_attn.k_norm";
  names.attention_output = at + "self_attn.o_proj.linear";
  names.norm2 = at + "pre_feedforward_layernorm";
  names.norm2_after = at + "post_feedforward_layernorm";
  names.ffn_input = {at + "mlp.gate_proj.linear", at + "mlp.up_proj.linear"};
  names.ffn_output = at + "mlp.down_proj.linear";
  return names;
}

}  // namespace jige::model
