#include "model/image_parts_qwen.h"

#include <string>

#include "ops/elementwise.h"

namespace jige::model {
namespace {

constexpr int64_t kPatchColours = 3;
const std::string kVisual = "model.visual.";

}  // namespace

QwenEntry::QwenEntry(const formats::ImageConfig& config)
    : pixels_(config.patch_size * config.patch_size), frames_(config.frames) {
  const int64_t width = config.tower.hidden_size;
  patches_ = Projection({.parts = {{kVisual + "patch_embed.proj", width}},
                         .inputs = kPatchColours * frames_ * pixels_},
                        params_);
  params_.front().as_kernels =
      Shape{width, kPatchColours, frames_, config.patch_size, config.patch_size};
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
}

QwenMerger::QwenMerger(const formats::ImageConfig& config)
    : width_(config.tower.hidden_size), merged_(config.merge * config.merge) {
  const std::string at = kVisual + "merger.";
  norm_ = NormLayer(config.tower, at + "ln_q", width_, false, params_);
  const auto linear = [&](const char* name, int64_t outputs) {
    return Projection({.parts = {{at + name, outputs}}, .inputs = merged_ * width_, .bias = true},
                      params_);
  };
  first_ = linear("mlp.0", merged_ * width_);
  second_ = linear("mlp.2", config.text_width);
  packed_ = PackedSizes(&first_, &second_);
}

QwenMerger::Work QwenMerger::place_work(Placement& at, int64_t patch_count, DType compute) const {
  return {.normed = at.take(compute, Shape{patch_count, width_}),
          .hidden = at.take(compute, Shape{patch_count / merged_, first_.outputs()})};
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
  Placement at(task.workspace);
  const Work work = place_work(at, src.rows(), task.compute);
  norm_.forward(stream, weights, work.normed, src, {});
  const TensorView joined = work.normed.reshaped(Shape{work.hidden.rows(), merged_ * width_});
  first_.forward(stream, weights, task.compute, {.dst = work.hidden, .src = joined});
  ops::activation_forward(stream, work.hidden, work.hidden, ops::Activation::kGeluErf);
  second_.forward(stream, weights, task.compute, {.dst = dst, .src = work.hidden});
}

LayerNames qwen_layer_names(int64_t index) {
  const std::string at = kVisual + "blocks." + std::to_string(index) + ".";
  LayerNames names;
  names.norm1 = at + "norm1";
  names.attention.qkv = {at + "attn.qkv"};
  names.attention_output = at + "attn.proj";
  names.norm2 = at + "norm2";
  names.ffn_input = {at + "mlp.gate_proj", at + "mlp.up_proj"};
  names.ffn_output = at + "mlp.down_proj";
  return names;
}

}  // namespace jige::model
