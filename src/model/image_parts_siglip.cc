#include "model/image_parts_siglip.h"

#include <utility>

#include "ops/add_blended_rows.h"

namespace jige::model {
namespace {

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
    : PatchEntry(config, tower + "embeddings.patch_embedding", true), side_(config.positions_side) {
  positions_ = params_.size();
  params_.push_back({.name = tower + "embeddings.position_embedding.weight",
                     .shape = Shape{side_ * side_, config.tower.hidden_size}});
}

void SiglipEntry::forward(const ImageTask& task, const BlockWeights& weights, const TensorView& src,
                          const TensorView& dst) const {
  multiply(task, weights, src, dst);
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
