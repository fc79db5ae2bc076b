#include "model/image_parts_qwen.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <utility>

#include "ops/add_blended_rows.h"
#include "ops/elementwise.h"

namespace jige::model {
namespace {

constexpr int64_t kPatchColours = 3;
const std::string kVisual = "model.visual.";

// Where a row or column of an image's patches stands among so many of the learned ones: between two
// of them, at a share of the way.
struct Between {
  int64_t first, second;
  float share;  // of the second
};

Between between(int64_t index, int64_t count, int64_t side) {
  // The first and the last of both are the same, in floats as transformers has them.
  const float steps = static_cast<float>(std::max<int64_t>(count - 1, 1));
  const float place = static_cast<float>(index) * static_cast<float>(side - 1) / steps;
  const auto first = static_cast<int64_t>(place);
  return {.first = first,
          .second = std::min(first + 1, side - 1),
          .share = place - static_cast<float>(first)};
}

std::vector<ops::Blend> stretched(int64_t rows, int64_t columns, int64_t side) {
  std::vector<ops::Blend> blends;
  for (int64_t y = 0; y < rows; ++y) {
    const Between down = between(y, rows, side);
    for (int64_t x = 0; x < columns; ++x) {
      const Between along = between(x, columns, side);
      const auto at = [&](int64_t row, int64_t column) {
        return static_cast<int32_t>(row * side + column);
      };
      blends.push_back(
          {.rows = {at(down.first, along.first), at(down.first, along.second),
                    at(down.second, along.first), at(down.second, along.second)},
           .weights = {(1 - down.share) * (1 - along.share), (1 - down.share) * along.share,
                       down.share * (1 - along.share), down.share * along.share}});
    }
  }
  return blends;
}

}  // namespace

QwenEntry::QwenEntry(const formats::ImageConfig& config)
    : pixels_(config.patch_size * config.patch_size),
      frames_(config.frames),
      side_(config.positions_side) {
  const int64_t width = config.tower.hidden_size;
  patches_ = Projection({.parts = {{kVisual + "patch_embed.proj", width}},
                         .inputs = kPatchColours * frames_ * pixels_,
                         .bias = side_ > 0},
                        params_);
  params_.front().as_kernels =
      Shape{width, kPatchColours, frames_, config.patch_size, config.patch_size};
  if (side_ > 0) {
    positions_ = params_.size();
    params_.push_back({.name = kVisual + "pos_embed.weight", .shape = Shape{side_ * side_, width}});
  }
  packed_ = PackedSizes(&patches_);
}

int64_t QwenEntry::workspace_bytes(int64_t patch_count, DType compute) const {
  Placement at;
  at.take(compute, Shape{patch_count, patches_.inputs()});
  return at.peak_bytes();
}

double QwenEntry::forward_flops(double patch_count) const { return 2 * patch_count * elements(); }

void QwenEntry::forward(const ImageTask& task, const BlockWeights& weights, const TensorView& src,
                        const TensorView& dst) const {
  Placement at(task.workspace);
  const TensorView rows = at.take(task.compute, Shape{src.rows(), patches_.inputs()});
  for (int64_t i = 0; i < kPatchColours * frames_; ++i) {
    const int64_t colour = i / frames_;
    ops::scale(task.stream, rows.column_range(i * pixels_, (i + 1) * pixels_),
               src.column_range(colour * pixels_, (colour + 1) * pixels_), 1.0f);
  }
  patches_.forward(task.stream, weights, task.compute, {.dst = dst, .src = rows});
  if (!positions_) return;
  ops::add_blended_rows(task.stream, dst, weights.params[*positions_].value,
                        stretched(src.rows() / task.patch_columns, task.patch_columns, side_));
}

QwenMerger::QwenMerger(const formats::ImageConfig& config)
    : width_(config.tower.hidden_size), merged_(config.merge * config.merge) {
  const bool newer = config.family == formats::ImageFamily::kQwen3;
  for (int64_t i = 0; i < config.levels(); ++i) {
    const std::string at =
        kVisual + (i == 0 ? "merger." : fmt::format("deepstack_merger_list.{}.", i - 1));
    const auto linear = [&](const char* name, int64_t outputs) {
      return Projection({.parts = {{at + name, outputs}}, .inputs = merged_ * width_, .bias = true},
                        params_);
    };
    Level level{.joins_first = i > 0};
    level.norm =
        NormLayer(config.tower, at + (newer ? "norm" : "ln_q"), i > 0 ? merged_ * width_ : width_,
                  config.tower.norm == formats::NormKind::kLayer, params_);
    level.first = linear(newer ? "linear_fc1" : "mlp.0", merged_ * width_);
    level.second = linear(newer ? "linear_fc2" : "mlp.2", config.text_width);
    levels_.all.push_back(std::move(level));
  }
  packed_ = PackedSizes(&levels_);
}

void QwenMerger::Levels::plan_forward(Placement& at, DType compute, ops::WeightFormat format) {
  for (Level& level : all) {
    level.first.plan_forward(at, compute, format);
    level.second.plan_forward(at, compute, format);
  }
}

void QwenMerger::Levels::plan_backward(Placement& at, DType compute, ops::WeightFormat format) {
  for (Level& level : all) {
    level.first.plan_backward(at, compute, format);
    level.second.plan_backward(at, compute, format);
  }
}

std::vector<const Projection*> QwenMerger::projections() const {
  std::vector<const Projection*> all;
  for (const Level& level : levels_.all) all.insert(all.end(), {&level.first, &level.second});
  return all;
}

QwenMerger::Work QwenMerger::place_work(Placement& at, int64_t patch_count, DType compute) const {
  const int64_t rows = patch_count / merged_;
  return {.normed = at.take(compute, Shape{patch_count, width_}),
          .hidden = at.take(compute, Shape{rows, merged_ * width_})};
}

int64_t QwenMerger::workspace_bytes(int64_t patch_count, DType compute) const {
  Placement at;
  place_work(at, patch_count, compute);
  return at.peak_bytes();
}

double QwenMerger::forward_flops(double patch_count) const {
  return 2 * patch_count / static_cast<double>(merged_) * elements();
}

void QwenMerger::forward(const ImageTask& task, const BlockWeights& weights, const TensorView& src,
                         const TensorView& dst) const {
  Stream& stream = task.stream;
  const Level& level = levels_.all[task.level];
  Placement at(task.workspace);
  const Work work = place_work(at, src.rows(), task.compute);
  const TensorView joined = work.normed.reshaped(work.hidden.shape);
  if (level.joins_first) {
    level.norm.forward(stream, weights, joined, src.reshaped(work.hidden.shape), {});
  } else {
    level.norm.forward(stream, weights, work.normed, src, {});
  }
  level.first.forward(stream, weights, task.compute, {.dst = work.hidden, .src = joined});
  ops::activation_forward(stream, work.hidden, work.hidden, ops::Activation::kGeluErf);
  level.second.forward(stream, weights, task.compute, {.dst = dst, .src = work.hidden});
}

LayerNames qwen_layer_names(const formats::ImageConfig& config, int64_t index) {
  const std::string at = kVisual + "blocks." + std::to_string(index) + ".";
  LayerNames names;
  names.norm1 = at + "norm1";
  names.attention.qkv = {at + "attn.qkv"};
  names.attention_output = at + "attn.proj";
  names.norm2 = at + "norm2";
  if (config.family == formats::ImageFamily::kQwen3) {
    names.ffn_input = {at + "mlp.linear_fc1"};
    names.ffn_output = at + "mlp.linear_fc2";
  } else if (config.family == formats::ImageFamily::kQwen2) {
    names.ffn_input = {at + "mlp.fc1"};
    names.ffn_output = at + "mlp.fc2";
  } else {
    names.ffn_input = {at + "mlp.gate_proj", at + "mlp.up_proj"};
    names.ffn_output = at + "mlp.down_proj";
  }
  return names;
}

}  // namespace jige::model
