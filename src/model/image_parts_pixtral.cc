#include "model/image_parts_pixtral.h"

#include <string>

#include "model/dense_mlp.h"

namespace jige::model {
namespace {

// The norm of the projector has an epsilon of its own.
formats::ModelConfig with_norm_eps(formats::ModelConfig config, double eps) {
  config.norm_eps = eps;
  return config;
}

}  // namespace

PixtralEntry::PixtralEntry(const formats::ImageConfig& config)
    : PatchEntry(config, "model.vision_tower.patch_conv", false) {
  norm_ = NormLayer(config.tower, "model.vision_tower.ln_pre", config.tower.hidden_size, false,
                    params_);
}

void PixtralEntry::forward(const ImageTask& task, const BlockWeights& weights,
                           const TensorView& src, const TensorView& dst) const {
  multiply(task, weights, src, dst);
  norm_.forward(task.stream, weights, dst, dst, {});
}

PixtralProjector::PixtralProjector(const formats::ImageConfig& config)
    : width_(config.tower.hidden_size),
      merged_(config.merge * config.merge),
      activation_(plain_activation(config.projector_activation)) {
  const std::string at = "model.multi_modal_projector.";
  if (config.merges) {
    norm_ = NormLayer(with_norm_eps(config.tower, config.projector_norm_eps), at + "norm", width_,
                      false, params_);
    const size_t merging = params_.size();
    merge_.emplace(ProjectionOptions{.parts = {{at + "patch_merger.merging_layer", width_}},
                                     .inputs = merged_ * width_},
                   params_);
    // Files have a column's numbers of all patches together.
    params_[merging].stored_columns =
        StoredRows{.turns = width_, .parts = std::vector<int64_t>(static_cast<size_t>(merged_), 1)};
  }
  const auto linear = [&](const char* name, int64_t inputs) {
    return Projection({.parts = {{at + name, config.text_width}},
                       .inputs = inputs,
                       .bias = config.projector_bias},
                      params_);
  };
  first_ = linear("linear_1", width_);
  second_ = linear("linear_2", config.text_width);
  if (config.packs_rows()) {
    params_.push_back({.name = "model.image_newline", .shape = Shape{config.text_width}});
  }
  packed_ = PackedSizes(merge_ ? &*merge_ : nullptr, &first_, &second_);
}

std::vector<const Projection*> PixtralProjector::projections() const {
  if (!merge_) return {&first_, &second_};
  return {&*merge_, &first_, &second_};
}

PixtralProjector::Work PixtralProjector::place_work(Placement& at, int64_t patch_count,
                                                    DType compute) const {
  const int64_t rows = patch_count / merged_;
  Work work;
  work.normed = at.take(compute, Shape{patch_count, width_});
  if (merge_) work.merged = at.take(compute, Shape{rows, width_});
  work.hidden = at.take(compute, Shape{rows, first_.outputs()});
  return work;
}

int64_t PixtralProjector::workspace_bytes(int64_t patch_count, DType compute) const {
  Placement at;
  place_work(at, patch_count, compute);
  return at.peak_bytes();
}

double PixtralProjector::forward_flops(double patch_count) const {
  return 2 * patch_count / static_cast<double>(merged_) * elements();
}

void PixtralProjector::forward(const ImageTask& task, const BlockWeights& weights,
                               const TensorView& src, const TensorView& dst) const {
  Stream& stream = task.stream;
  Placement at(task.workspace);
  const Work work = place_work(at, src.rows(), task.compute);
  if (merge_) {
    norm_.forward(stream, weights, work.normed, src, {});
    const TensorView joined = TensorView::of(work.normed.data, work.normed.dtype,
                                             Shape{work.merged.rows(), merged_ * width_});
    merge_->forward(stream, weights, task.compute, {.dst = work.merged, .src = joined});
  } else {
    ops::scale(stream, work.normed, src, 1.0f);
  }
  first_.forward(stream, weights, task.compute,
                 {.dst = work.hidden, .src = merge_ ? work.merged : work.normed});
  ops::activation_forward(stream, work.hidden, work.hidden, activation_);
  second_.forward(stream, weights, task.compute, {.dst = dst, .src = work.hidden});
}

LayerNames pixtral_layer_names(int64_t index) {
  const std::string at = "model.vision_tower.transformer.layers." + std::to_string(index) + ".";
  LayerNames names;
  names.norm1 = at + "attention_norm";
  names.attention.qkv = {at + "attention.q_proj", at + "attention.k_proj", at + "attention.v_proj"};
  names.attention_output = at + "attention.o_proj";
  names.norm2 = at + "ffn_norm";
  names.ffn_input = {at + "feed_forward.gate_proj", at + "feed_forward.up_proj"};
  names.ffn_output = at + "feed_forward.down_proj";
  return names;
}

}  // namespace jige::model
