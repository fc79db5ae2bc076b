#include "model/image_parts_siglip.h"

#include <utility>

#include "ops/add_blended_rows.h"
#include "ops/elementwise.h"

namespace jige::model {
namespace {

constexpr int64_t kSiglipColours = 3;

// The learned position of each of rows x columns patches, of side x side.
std::vector<ops::Blend> nearest_positions(int64_t rows, int64_t columns, int64_t side) {
  std::vector<ops::Blend> positions;
  for (int64_t y = 0; y < rows; ++y) {
    for (int64_t x = 0; x < columns; ++x) {
      const auto at = static_cast<int32_t>(y * side / rows * side + x * side / columns);
      positions.push_back({.rows = {at, at, at, at}, .weights = {1, 0, 0, 0}});
    }
  }
  return positions;
}

}  // namespace

SiglipEntry::SiglipEntry(const formats::ImageConfig& config, const std::string& tower)
    : side_(config.positions_side) {
  const int64_t patch = config.patch_size;
  const int64_t width = config.tower.hidden_size;
  const std::string at = tower + "embeddings.";
  patches_ = Projection({.parts = {{at + "patch_embedding", width}},
                         .inputs = kSiglipColours * patch * patch,
                         .bias = true},
                        params_);
  params_.front().as_kernels = Shape{width, kSiglipColours, patch, patch};
  positions_ = params_.size();
  params_.push_back(
      {.name = at + "position_embedding.weight", .shape = Shape{side_ * side_, width}});
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
  ops::add_blended_rows(
      task.stream, dst, weights.params[positions_].value,
      nearest_positions(src.rows() / task.patch_columns, task.patch_columns, side_));
}

LayerNames siglip_layer_names(const std::string& tower, int64_t index) {
  const std::string at = tower + "encoder.layers." + std::to_string(index) + ".";
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
