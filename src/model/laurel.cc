#include "model/laurel.h"

#include <algorithm>
#include <numbers>

#include "ops/elementwise.h"

namespace jige::model {
namespace {

constexpr auto kHalfRoot = static_cast<float>(std::numbers::sqrt2 / 2);

}  // namespace

Laurel::Laurel(const formats::ModelConfig& config, const LaurelNames& names, double output_std,
               DeviceKind device, std::vector<ParamSpec>& params)
    : width_(config.hidden_size), rank_(config.laurel_rank) {
  left_ = Projection({.parts = {{names.left, rank_}}, .inputs = width_, .device = device}, params);
  right_ = Projection(
      {.parts = {{names.right, width_}}, .inputs = rank_, .init_std = output_std, .device = device},
      params);
  norm_ = NormLayer(config, names.norm, width_, false, params);
}

void Laurel::plan_forward(Placement& at, DType compute, ops::WeightFormat format) {
  left_.plan_forward(at, compute, format);
  right_.plan_forward(at, compute, format);
}

void Laurel::plan_backward(Placement& at, DType compute, ops::WeightFormat format) {
  left_.plan_backward(at, compute, format);
  right_.plan_backward(at, compute, format);
}

Laurel::Saved Laurel::place_saved(Placement& at, int64_t token_count, DType compute,
                                  bool keeps) const {
  Saved saved;
  saved.low = at.take(compute, Shape{token_count, rank_});
  saved.high = at.take(compute, Shape{token_count, width_});
  if (keeps) saved.stats = norm_.place_stats(at, token_count);
  return saved;
}

Laurel::Pending Laurel::place_pending(Placement& at, int64_t token_count, DType compute) const {
  Pending pending;
  pending.low = at.take(compute, Shape{token_count, rank_});
  for (TensorView* rows : {&pending.high, &pending.after, &pending.rows}) {
    *rows = at.take(compute, Shape{token_count, width_});
  }
  return pending;
}

Laurel::Work Laurel::place_work(Placement& at, int64_t token_count, DType compute,
                                bool training) const {
  Work work;
  work.rows = at.take(compute, Shape{token_count, width_});
  const int64_t scratch = std::max(left_.weight_scratch_bytes(token_count, compute),
                                   right_.weight_scratch_bytes(token_count, compute));
  if (training && scratch > 0) work.scratch = at.take(DType::kU8, Shape{scratch});
  return work;
}

void Laurel::forward(Stream& stream, const BlockWeights& weights, DType compute,
                     const TensorView& rows, const TensorView& src, const Saved& saved,
                     const Work& work) const {
  left_.forward(stream, weights, compute, {.dst = saved.low, .src = src});
  right_.forward(stream, weights, compute, {.dst = saved.high, .src = saved.low});
  norm_.forward(stream, weights, work.rows, saved.high, saved.stats);
  ops::add(stream, rows, rows, src);
  ops::add(stream, rows, rows, work.rows);
  ops::scale(stream, rows, rows, kHalfRoot);
}

void Laurel::backward_input(Stream& stream, const BlockWeights& weights, DType compute,
                            const TensorView& grad_rows, const Saved& saved,
                            const Pending& pending) const {
  ops::scale(stream, grad_rows, grad_rows, kHalfRoot);
  ops::scale(stream, pending.after, grad_rows, 1.0f);
  norm_.backward_input(stream, weights, pending.high, pending.after, saved.high, saved.stats,
                       false);
  right_.backward_input(stream, weights, compute,
                        {.grad_src = pending.low, .grad_dst = pending.high});
  left_.backward_input(stream, weights, compute,
                       {.grad_src = pending.rows, .grad_dst = pending.low});
  ops::add(stream, pending.rows, pending.rows, pending.after);
}

void Laurel::backward_weight(Stream& stream, const BlockWeights& weights, DType compute,
                             const TensorView& src, GradientUse gradients, const Saved& saved,
                             const Pending& pending, const Work& work) const {
  norm_.backward_weight(stream, weights, pending.after, saved.high, saved.stats);
  const auto add = [&](const Projection& projection, const TensorView& grad,
                       const TensorView& rows) {
    if (!projection.wants_gradient(weights)) return;
    projection.backward_weight(
        stream, weights, compute,
        {.grad_dst = grad, .src = rows, .scratch = work.scratch, .gradients = gradients});
  };
  add(right_, pending.high, saved.low);
  add(left_, pending.low, src);
}

}  // namespace jige::model
