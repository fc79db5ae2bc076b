#include "model/image_parts_internvl.h"

#include "model/dense_mlp.h"

namespace jige::model {
namespace {

formats::ModelConfig projector_norm_config(const formats::ImageConfig& config) {
  formats::ModelConfig norm = config.tower;
  norm.norm = formats::NormKind::kLayer;
  norm.norm_eps = config.projector_norm_eps;
  return norm;
}

}  // namespace

InternVlProjector::InternVlProjector(const formats::ImageConfig& config)
    : width_(config.tower.hidden_size),
      merged_(config.merge * config.merge),
      activation_(plain_activation(config.projector_activation)) {
  const std::string at = "model.multi_modal_projector.";
  const int64_t joined = merged_ * width_;
  norm_ = NormLayer(projector_norm_config(config), at + "layer_norm", joined, true, params_);
  const auto linear = [&](const char* name, int64_t inputs) {
    return Projection({.parts = {{at + name, config.text_width}}, .inputs = inputs, .bias = true},
                      params_);
  };
  first_ = linear("linear_1", joined);
  second_ = linear("linear_2", config.text_width);
  packed_ = PackedSizes(&first_, &second_);
}

InternVlProjector::Work InternVlProjector::place_work(Placement& at, int64_t patch_count,
                                                      DType compute) const {
  const int64_t rows = patch_count / merged_;
  Work work;
  work.normed = at.take(compute, Shape{rows, merged_ * width_});
  work.hidden = at.take(compute, Shape{rows, first_.outputs()});
  return work;
}

int64_t InternVlProjector::workspace_bytes(int64_t patch_count, DType compute) const {
  Placement at;
  place_work(at, patch_count, compute);
  return at.peak_bytes();
}

double InternVlProjector::forward_flops(double patch_count) const {
  return 2 * patch_count / static_cast<double>(merged_) * elements();
}

void InternVlProjector::forward(const ImageTask& task, const BlockWeights& weights,
                                const TensorView& src, const TensorView& dst) const {
  Stream& stream = task.stream;
  Placement at(task.workspace);
  const Work work = place_work(at, src.rows(), task.compute);
  const TensorView joined = src.reshaped(work.normed.shape);
  norm_.forward(stream, weights, work.normed, joined, {});
  first_.forward(stream, weights, task.compute, {.dst = work.hidden, .src = work.normed});
  ops::activation_forward(stream, work.hidden, work.hidden, activation_);
  second_.forward(stream, weights, task.compute, {.dst = dst, .src = work.hidden});
}

LayerNames internvl_layer_names(int64_t index) {
  const std::string at = kInternVlTower + "encoder.layer." + std::to_string(index) + ".";
  LayerNames names;
  names.norm1 = at + "layernorm_before";
  names.attention.qkv = {at + "attention.q_proj", at + "attention.k_proj", at + "attention.v_proj"};
  names.attention.q_norm = at + "attention.q_norm";
  names.attention.k_norm = at + "attention.k_norm";
  names.attention_output = at + "attention.projection_layer";
  names.norm1_after = at + "lambda_1";
  names.norm2 = at + "layernorm_after";
  names.ffn_input = {at + "mlp.fc1"};
  names.ffn_output = at + "mlp.fc2";
  names.norm2_after = at + "lambda_2";
  return names;
}

}  // namespace jige::model
