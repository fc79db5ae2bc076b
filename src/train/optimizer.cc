#include "train/optimizer.h"

#include <cmath>
#include <utility>

#include "ops/adamw.h"

namespace jige::train {
namespace {

constexpr double kClipEpsilon = 1e-6;

double global_norm(Stream& stream, std::span<const model::NamedParam> params) {
  double sum = 0;
  for (const model::NamedParam& param : params) ops::add_sum_of_squares(stream, param.grad, &sum);
  stream.synchronize();
  return std::sqrt(sum);
}

}  // namespace

Optimizer::Optimizer(std::span<const model::NamedParam> params, const OptimizerOptions& options)
    : params_(params.begin(), params.end()), options_(options) {}

Result<Optimizer> Optimizer::create(Arena& arena, std::span<const model::NamedParam> params,
                                    const OptimizerOptions& options) {
  Optimizer optimizer(params, options);
  for (const model::NamedParam& param : optimizer.params_) {
    JIGE_TRY(Tensor moment1, arena.make_zero(DType::kF32, param.value.shape));
    JIGE_TRY(Tensor moment2, arena.make_zero(DType::kF32, param.value.shape));
    optimizer.moments1_.push_back(std::move(moment1));
    optimizer.moments2_.push_back(std::move(moment2));
  }
  return optimizer;
}

OptimizerReport Optimizer::step(Stream& stream, const OptimizerStep& args) {
  OptimizerReport report{.grad_norm = global_norm(stream, params_)};
  report.applied = std::isfinite(report.grad_norm) && !args.refuse;
  if (!report.applied) return report;
  if (options_.clip_norm > 0 && report.grad_norm > options_.clip_norm) {
    report.grad_scale = options_.clip_norm / (report.grad_norm + kClipEpsilon);
  }
  ++update_count_;
  for (size_t i = 0; i < params_.size(); ++i) {
    ops::adamw(stream, {.weight = params_[i].value,
                        .moment1 = moments1_[i].view(),
                        .moment2 = moments2_[i].view(),
                        .grad = params_[i].grad,
                        .learning_rate = args.learning_rate,
                        .beta1 = options_.beta1,
                        .beta2 = options_.beta2,
                        .epsilon = options_.epsilon,
                        .weight_decay = params_[i].spec->decay ? options_.weight_decay : 0,
                        .step = update_count_,
                        .grad_scale = report.grad_scale});
  }
  return report;
}

}  // namespace jige::train
