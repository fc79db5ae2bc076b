#include "model/norm_layer.h"

#include "ops/norm.h"

namespace jige::model {

NormLayer::NormLayer(const formats::ModelConfig& config, const std::string& prefix, int64_t columns,
                     std::vector<ParamSpec>& params)
    : kind_(config.norm),
      eps_(config.norm_eps),
      adds_one_(config.norm_adds_one),
      weight_index_(params.size()) {
  params.push_back({.name = prefix + ".weight",
                    .shape = Shape{columns},
                    .init = adds_one_ ? InitKind::kZero : InitKind::kOne});
  if (is_layer_norm()) {
    params.push_back({.name = prefix + ".bias", .shape = Shape{columns}, .init = InitKind::kZero});
  }
}

NormStats NormLayer::place_stats(Placement& at, int64_t token_count, int64_t groups) const {
  NormStats stats{.rstd = at.take(DType::kF32, Shape{token_count, groups})};
  if (is_layer_norm()) stats.mean = at.take(DType::kF32, Shape{token_count, groups});
  return stats;
}

TensorView NormLayer::bias(const BlockWeights& weights) const {
  return is_layer_norm() ? weights.params[weight_index_ + 1].value : TensorView{};
}

void NormLayer::forward(Stream& stream, const BlockWeights& weights, const TensorView& dst,
                        const TensorView& src, const NormStats& stats) const {
  const ops::NormForward args{.dst = dst,
                              .src = src,
                              .weight = weights.params[weight_index_].value,
                              .bias = bias(weights),
                              .rstd = stats.rstd,
                              .mean = stats.mean,
                              .eps = eps_,
                              .weight_adds_one = adds_one_};
  is_layer_norm() ? ops::layer_norm_forward(stream, args) : ops::rms_norm_forward(stream, args);
}

void NormLayer::backward_input(Stream& stream, const BlockWeights& weights,
                               const TensorView& grad_src, const TensorView& grad_dst,
                               const TensorView& src, const NormStats& stats,
                               bool accumulate) const {
  const ops::NormBackwardInput args{.grad_src = grad_src,
                                    .grad_dst = grad_dst,
                                    .src = src,
                                    .weight = weights.params[weight_index_].value,
                                    .rstd = stats.rstd,
                                    .mean = stats.mean,
                                    .accumulate = accumulate,
                                    .weight_adds_one = adds_one_};
  is_layer_norm() ? ops::layer_norm_backward_input(stream, args)
                  : ops::rms_norm_backward_input(stream, args);
}

void NormLayer::backward_weight(Stream& stream, const BlockWeights& weights,
                                const TensorView& grad_dst, const TensorView& src,
                                const NormStats& stats) const {
  const TensorView grad_weight = weights.params[weight_index_].grad;
  if (!grad_weight) return;
  const ops::NormBackwardWeight args{
      .grad_weight = grad_weight,
      .grad_bias = is_layer_norm() ? weights.params[weight_index_ + 1].grad : TensorView{},
      .grad_dst = grad_dst,
      .src = src,
      .rstd = stats.rstd,
      .mean = stats.mean};
  is_layer_norm() ? ops::layer_norm_backward_weight(stream, args)
                  : ops::rms_norm_backward_weight(stream, args);
}

}  // namespace jige::model
