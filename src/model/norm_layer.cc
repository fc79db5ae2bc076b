#include "model/norm_layer.h"

#include "base/check.h"
#include "ops/elementwise.h"

namespace jige::model {

NormLayer::NormLayer(const formats::ModelConfig& config, const std::string& prefix, int64_t columns,
                     bool bias, std::vector<ParamSpec>& params)
    : kind_(config.norm),
      eps_(config.norm_eps),
      adds_one_(config.norm_adds_one),
      has_weight_(config.norm_weights && !prefix.empty()),
      has_bias_(has_weight_ && bias && is_layer_norm()),
      columns_(columns),
      weight_index_(params.size()) {
  if (!has_weight_) return;
  params.push_back({.name = prefix + ".weight",
                    .shape = Shape{columns},
                    .init = adds_one_ ? InitKind::kZero : InitKind::kOne});
  if (has_bias_) {
    params.push_back({.name = prefix + ".bias", .shape = Shape{columns}, .init = InitKind::kZero});
  }
}

NormLayer NormLayer::of_scales(const std::string& name, int64_t columns,
                               std::vector<ParamSpec>& params) {
  NormLayer layer;
  layer.scales_only_ = true;
  layer.columns_ = columns;
  layer.weight_index_ = params.size();
  params.push_back({.name = name, .shape = Shape{columns}, .init = InitKind::kOne});
  return layer;
}

NormStats NormLayer::place_stats(Placement& at, int64_t token_count, int64_t groups) const {
  NormStats stats{.rstd = at.take(DType::kF32, Shape{token_count, groups})};
  if (is_layer_norm()) stats.mean = at.take(DType::kF32, Shape{token_count, groups});
  return stats;
}

TensorView NormLayer::weight(const BlockWeights& weights) const {
  return has_weight_ ? weights.params[weight_index_].value : TensorView{};
}

TensorView NormLayer::bias(const BlockWeights& weights) const {
  return has_bias_ ? weights.params[weight_index_ + 1].value : TensorView{};
}

ops::NormForward NormLayer::task(const BlockWeights& weights, const TensorView& dst,
                                 const TensorView& src, const NormStats& stats) const {
  return {.dst = dst,
          .src = src,
          .weight = weight(weights),
          .bias = bias(weights),
          .rstd = stats.rstd,
          .mean = stats.mean,
          .eps = eps_,
          .weight_adds_one = adds_one_,
          .width = columns_};
}

void NormLayer::forward(Stream& stream, const BlockWeights& weights, const TensorView& dst,
                        const TensorView& src, const NormStats& stats) const {
  if (scales_only_) return ops::scale_columns(stream, dst, src, weight(weights), {});
  const ops::NormForward args = task(weights, dst, src, stats);
  is_layer_norm() ? ops::layer_norm_forward(stream, args) : ops::rms_norm_forward(stream, args);
}

void NormLayer::backward_input(Stream& stream, const BlockWeights& weights,
                               const TensorView& grad_src, const TensorView& grad_dst,
                               const TensorView& src, const NormStats& stats,
                               bool accumulate) const {
  JIGE_CHECK(!scales_only_, "numbers of columns that are for inference alone");
  const ops::NormBackwardInput args{.grad_src = grad_src,
                                    .grad_dst = grad_dst,
                                    .src = src,
                                    .weight = weight(weights),
                                    .rstd = stats.rstd,
                                    .mean = stats.mean,
                                    .accumulate = accumulate,
                                    .weight_adds_one = adds_one_,
                                    .width = columns_};
  is_layer_norm() ? ops::layer_norm_backward_input(stream, args)
                  : ops::rms_norm_backward_input(stream, args);
}

void NormLayer::backward_weight(Stream& stream, const BlockWeights& weights,
                                const TensorView& grad_dst, const TensorView& src,
                                const NormStats& stats) const {
  if (!has_weight_) return;
  const TensorView grad_weight = weights.params[weight_index_].grad;
  if (!grad_weight) return;
  const ops::NormBackwardWeight args{
      .grad_weight = grad_weight,
      .grad_bias = has_bias_ ? weights.params[weight_index_ + 1].grad : TensorView{},
      .grad_dst = grad_dst,
      .src = src,
      .rstd = stats.rstd,
      .mean = stats.mean};
  is_layer_norm() ? ops::layer_norm_backward_weight(stream, args)
                  : ops::rms_norm_backward_weight(stream, args);
}

HeadNormLayer::HeadNormLayer(const formats::ModelConfig& config, const std::string& prefix,
                             int64_t heads, int64_t head_dim, bool stacked,
                             std::vector<ParamSpec>& params)
    : groups_(config.qk_norm_whole ? 1 : heads) {
  if (!config.qk_norm_apart) {
    const int64_t columns = config.qk_norm_whole ? heads * head_dim : head_dim;
    norms_.emplace_back(config, prefix, columns, false, params);
    return;
  }
  for (int64_t head = 0; head < heads; ++head) {
    norms_.emplace_back(config, prefix + "." + std::to_string(head), head_dim, false, params);
    ParamSpec& weight = params.back();
    if (stacked) {
      weight.stacked = StackedPlace{
          .tensor = prefix + ".weight", .expert = head, .expert_count = heads, .usual = true};
    }
    if (config.turns_neighbours) {
      weight.stored_rows = StoredRows{.turns = head_dim / 2, .parts = {1, 1}};
    }
  }
}

NormStats HeadNormLayer::place_stats(Placement& at, int64_t token_count) const {
  return norms_.front().place_stats(at, token_count, groups_);
}

TensorView HeadNormLayer::part(const TensorView& rows, size_t i) const {
  if (!rows || norms_.size() == 1) return rows;
  const int64_t columns = rows.columns() / std::ssize(norms_);
  const auto at = static_cast<int64_t>(i);
  return rows.column_range(at * columns, (at + 1) * columns);
}

NormStats HeadNormLayer::part(const NormStats& stats, size_t i) const {
  return {.rstd = part(stats.rstd, i), .mean = part(stats.mean, i)};
}

void HeadNormLayer::forward(Stream& stream, const BlockWeights& weights, const TensorView& dst,
                            const TensorView& src, const NormStats& stats) const {
  for (size_t i = 0; i < norms_.size(); ++i) {
    norms_[i].forward(stream, weights, part(dst, i), part(src, i), part(stats, i));
  }
}

void HeadNormLayer::backward_input(Stream& stream, const BlockWeights& weights,
                                   const TensorView& grad_src, const TensorView& grad_dst,
                                   const TensorView& src, const NormStats& stats) const {
  for (size_t i = 0; i < norms_.size(); ++i) {
    norms_[i].backward_input(stream, weights, part(grad_src, i), part(grad_dst, i), part(src, i),
                             part(stats, i), false);
  }
}

void HeadNormLayer::backward_weight(Stream& stream, const BlockWeights& weights,
                                    const TensorView& grad_dst, const TensorView& src,
                                    const NormStats& stats) const {
  for (size_t i = 0; i < norms_.size(); ++i) {
    norms_[i].backward_weight(stream, weights, part(grad_dst, i), part(src, i), part(stats, i));
  }
}

GroupNormLayer::GroupNormLayer(double eps, const std::string& prefix, int64_t columns,
                               int64_t groups, std::vector<ParamSpec>& params)
    : eps_(eps), groups_(groups), columns_(columns / groups), weight_index_(params.size()) {
  params.push_back({.name = prefix + ".weight", .shape = Shape{columns}, .init = InitKind::kOne});
}

NormStats GroupNormLayer::place_stats(Placement& at, int64_t token_count) const {
  return {.rstd = at.take(DType::kF32, Shape{token_count, groups_})};
}

void GroupNormLayer::forward(Stream& stream, const BlockWeights& weights, const TensorView& dst,
                             const TensorView& src, const NormStats& stats) const {
  for (int64_t g = 0; g < groups_; ++g) {
    ops::rms_norm_forward(stream, {.dst = part(dst, g),
                                   .src = part(src, g),
                                   .weight = vector(weights.params[weight_index_].value, g),
                                   .bias = {},
                                   .rstd = statistics(stats, g),
                                   .mean = {},
                                   .eps = eps_});
  }
}

void GroupNormLayer::backward_input(Stream& stream, const BlockWeights& weights,
                                    const TensorView& grad_src, const TensorView& grad_dst,
                                    const TensorView& src, const NormStats& stats) const {
  for (int64_t g = 0; g < groups_; ++g) {
    ops::rms_norm_backward_input(stream, {.grad_src = part(grad_src, g),
                                          .grad_dst = part(grad_dst, g),
                                          .src = part(src, g),
                                          .weight = vector(weights.params[weight_index_].value, g),
                                          .rstd = statistics(stats, g),
                                          .mean = {}});
  }
}

void GroupNormLayer::backward_weight(Stream& stream, const BlockWeights& weights,
                                     const TensorView& grad_dst, const TensorView& src,
                                     const NormStats& stats) const {
  if (!wants_gradient(weights)) return;
  for (int64_t g = 0; g < groups_; ++g) {
    ops::rms_norm_backward_weight(stream,
                                  {.grad_weight = vector(weights.params[weight_index_].grad, g),
                                   .grad_bias = {},
                                   .grad_dst = part(grad_dst, g),
                                   .src = part(src, g),
                                   .rstd = statistics(stats, g),
                                   .mean = {}});
  }
}

}  // namespace jige::model
