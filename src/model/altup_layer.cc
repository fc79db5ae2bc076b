#include "model/altup_layer.h"

#include <algorithm>

#include "ops/altup.h"
#include "ops/elementwise.h"
#include "ops/gate.h"
#include "ops/linear.h"

namespace jige::model {

AltUpLayer::AltUpLayer(const formats::ModelConfig& config, const AltUpNames& names,
                       DeviceKind device, std::vector<ParamSpec>& params)
    : layout_(config), width_(config.hidden_size), count_(config.altup.streams) {
  const auto make = [&](const std::string& name, int64_t outputs, int64_t inputs, double scale) {
    return Projection({.parts = {{name, outputs}},
                       .inputs = inputs,
                       .input_scale = scale,
                       .whole = true,
                       .device = device},
                      params);
  };
  norm_ = NormLayer(config, names.router_norm, width_, false, params);
  router_ = make(names.router, count_, width_, 1.0 / static_cast<double>(width_));
  prediction_ = make(names.prediction, count_ * count_, count_, 1.0);
  correction_ = make(names.correction, count_, count_, 1.0);
  // Files have the vector in any case.
  const bool scales = config.altup.scales_corrected;
  if (scales) scale_ = params.size();
  params.push_back({.name = names.output_scale,
                    .shape = Shape{width_},
                    .init = InitKind::kZero,
                    .fixed = !scales});
}

void AltUpLayer::plan_forward(Placement& at, DType compute, ops::WeightFormat format) {
  for (Projection* one : {&router_, &prediction_, &correction_}) {
    one->plan_forward(at, compute, format);
  }
}

void AltUpLayer::plan_backward(Placement& at, DType compute, ops::WeightFormat format) {
  for (Projection* one : {&router_, &prediction_, &correction_}) {
    one->plan_backward(at, compute, format);
  }
}

AltUpLayer::Saved AltUpLayer::place_saved(Placement& at, int64_t token_count, DType compute,
                                          bool keeps) const {
  const int64_t t = token_count;
  Saved saved;
  saved.active = at.take(DType::kF32, Shape{t, width_});
  saved.result = at.take(DType::kF32, Shape{t, width_});
  if (keeps && scale_) saved.corrected = at.take(DType::kF32, Shape{t, width_});
  saved.modes = at.take(compute, Shape{t, 2 * count_});
  if (keeps) saved.stats = norm_.place_stats(at, t, 2);
  saved.map = at.take(DType::kF32, Shape{t, count_ * count_});
  saved.gains = at.take(DType::kF32, Shape{t, count_});
  return saved;
}

AltUpLayer::Pending AltUpLayer::place_pending(Placement& at, int64_t token_count,
                                              DType compute) const {
  const int64_t t = token_count;
  Pending pending;
  pending.rows = at.take(compute, Shape{t, 2 * width_});
  pending.routed = at.take(compute, Shape{t, 2 * count_});
  pending.map = at.take(compute, Shape{t, count_ * count_});
  pending.gains = at.take(compute, Shape{t, count_});
  if (scale_) pending.scaled = at.take(DType::kF32, Shape{t, width_});
  return pending;
}

AltUpLayer::Work AltUpLayer::place_work(Placement& at, int64_t token_count, DType compute,
                                        bool training) const {
  const int64_t t = token_count;
  Work work;
  work.scaled = at.take(DType::kF32, Shape{t, width_});
  work.rows = at.take(compute, Shape{t, training ? 2 * width_ : width_});
  work.routed = at.take(DType::kF32, Shape{t, count_});
  if (!training) return work;
  work.result = at.take(DType::kF32, Shape{t, width_});
  work.others = at.take(DType::kF32, Shape{t, width_});
  work.modes = at.take(compute, Shape{t, count_});
  work.map = at.take(DType::kF32, Shape{t, count_ * count_});
  work.sources = at.take(DType::kF32, Shape{t, 2 * width_});
  int64_t scratch = 0;
  for (const Projection* one : projections()) {
    scratch = std::max(scratch, one->weight_scratch_bytes(2 * t, compute));
  }
  if (scratch > 0) work.scratch = at.take(DType::kU8, Shape{scratch});
  return work;
}

void AltUpLayer::make_modes(Stream& stream, const BlockWeights& weights, DType compute,
                            const TensorView& src, Place place, const Saved& saved,
                            const Work& work) const {
  const TensorView rows = first_columns(work.rows, width_);
  norm_.forward(stream, weights, rows, src, part(saved.stats, place));
  router_.forward(stream, weights, compute, {.dst = work.routed, .src = rows});
  ops::soft_cap(stream, work.routed, 1.0);  // tanh
  ops::scale(stream, part(saved.modes, place), work.routed, 1.0f);
}

void AltUpLayer::predict(Stream& stream, const BlockWeights& weights, DType compute,
                         const TensorView& dst, const TensorView& src, const Saved& saved,
                         const Work& work) const {
  make_modes(stream, weights, compute, layout_.stream(src, 0), kBefore, saved, work);
  prediction_.forward(stream, weights, compute,
                      {.dst = saved.map, .src = part(saved.modes, kBefore)});
  ops::altup_predict(stream, {.active = saved.active,
                              .others = layout_.other_streams(dst),
                              .src = layout_.streams(src),
                              .map = saved.map});
}

void AltUpLayer::correct(Stream& stream, const BlockWeights& weights, DType compute,
                         const TensorView& dst, const Saved& saved, const Work& work) const {
  make_modes(stream, weights, compute, saved.result, kAfter, saved, work);
  correction_.forward(stream, weights, compute,
                      {.dst = saved.gains, .src = part(saved.modes, kAfter)});
  ops::altup_correct(stream, {.dst = layout_.streams(dst),
                              .active = saved.active,
                              .result = saved.result,
                              .gains = saved.gains});
  const TensorView first = layout_.stream(dst, 0);
  if (saved.corrected) ops::scale(stream, saved.corrected, first, 1.0f);
  if (scale_) {
    ops::scale_columns(stream, work.scaled, first, weights.params[*scale_].value);
  } else {
    ops::scale(stream, work.scaled, first, 1.0f);
  }
}

void AltUpLayer::backward_modes(Stream& stream, const BlockWeights& weights, DType compute,
                                const TensorView& grad_src, const TensorView& src, Place place,
                                const Saved& saved, const Pending& pending,
                                const Work& work) const {
  const TensorView modes = part(saved.modes, place);
  const TensorView routed = part(pending.routed, place);
  const TensorView rows = part(pending.rows, place);
  // The slope of tanh is 1 less the square of what it gives.
  const TensorView& squared = work.routed;
  ops::gate_forward(stream, squared, work.modes, modes, ops::GateKind::kPlain);
  ops::gate_forward(stream, squared, squared, modes, ops::GateKind::kPlain);
  ops::scale(stream, squared, squared, -1.0f);
  ops::add(stream, routed, work.modes, squared);
  router_.backward_input(stream, weights, compute, {.grad_src = rows, .grad_dst = routed});
  norm_.backward_input(stream, weights, grad_src, rows, src, part(saved.stats, place), true);
}

void AltUpLayer::backward_correct(Stream& stream, const BlockWeights& weights, DType compute,
                                  const TensorView& grad, const Saved& saved,
                                  const Pending& pending, const Work& work) const {
  if (scale_) {
    ops::gate_forward(stream, pending.scaled, work.scaled, saved.corrected, ops::GateKind::kPlain);
    ops::scale_columns(stream, work.scaled, work.scaled, weights.params[*scale_].value);
  }
  const TensorView first = layout_.stream(grad, 0);
  ops::add(stream, first, first, work.scaled);
  ops::altup_correct_backward(stream, {.grad = layout_.streams(grad),
                                       .grad_result = work.result,
                                       .grad_gains = work.routed,
                                       .active = saved.active,
                                       .result = saved.result,
                                       .gains = saved.gains});
  ops::scale(stream, pending.gains, work.routed, 1.0f);
  correction_.backward_input(stream, weights, compute,
                             {.grad_src = work.modes, .grad_dst = pending.gains});
  backward_modes(stream, weights, compute, work.result, saved.result, kAfter, saved, pending, work);
}

void AltUpLayer::backward_predict(Stream& stream, const BlockWeights& weights, DType compute,
                                  const TensorView& grad, const TensorView& src, const Saved& saved,
                                  const Pending& pending, const Work& work) const {
  const TensorView first = layout_.stream(grad, 0);
  ops::add(stream, first, first, work.result);
  ops::altup_predict_backward(stream, {.grad = layout_.streams(grad),
                                       .grad_map = work.map,
                                       .src = layout_.streams(src),
                                       .map = saved.map});
  ops::scale(stream, pending.map, work.map, 1.0f);
  prediction_.backward_input(stream, weights, compute,
                             {.grad_src = work.modes, .grad_dst = pending.map});
  backward_modes(stream, weights, compute, first, layout_.stream(src, 0), kBefore, saved, pending,
                 work);
}

void AltUpLayer::modes_gradients(Stream& stream, const BlockWeights& weights, DType compute,
                                 const TensorView& src, GradientUse gradients, const Saved& saved,
                                 const Pending& pending, const Work& work) const {
  // The two rows of a token one behind the other.
  const auto as_rows = [](const TensorView& both) {
    return TensorView::of(both.data, both.dtype, Shape{2 * both.rows(), both.columns() / 2});
  };
  ops::scale(stream, part(work.sources, kBefore), layout_.stream(src, 0), 1.0f);
  ops::scale(stream, part(work.sources, kAfter), saved.result, 1.0f);
  const TensorView sources = as_rows(work.sources);
  const NormStats stats = {.rstd = as_rows(saved.stats.rstd)};
  norm_.backward_weight(stream, weights, as_rows(pending.rows), sources, stats);
  if (!router_.wants_gradient(weights)) return;
  norm_.forward(stream, weights, as_rows(work.rows), sources, {});
  router_.backward_weight(stream, weights, compute,
                          {.grad_dst = as_rows(pending.routed),
                           .src = as_rows(work.rows),
                           .scratch = work.scratch,
                           .gradients = gradients});
}

void AltUpLayer::backward_weight(Stream& stream, const BlockWeights& weights, DType compute,
                                 const TensorView& src, GradientUse gradients, const Saved& saved,
                                 const Pending& pending, const Work& work) const {
  modes_gradients(stream, weights, compute, src, gradients, saved, pending, work);
  const auto add = [&](const Projection& projection, const TensorView& grad,
                       const TensorView& modes) {
    if (!projection.wants_gradient(weights)) return;
    projection.backward_weight(
        stream, weights, compute,
        {.grad_dst = grad, .src = modes, .scratch = work.scratch, .gradients = gradients});
  };
  add(prediction_, pending.map, part(saved.modes, kBefore));
  add(correction_, pending.gains, part(saved.modes, kAfter));
  const TensorView grad_scale = scale_ ? weights.params[*scale_].grad : TensorView{};
  if (grad_scale) ops::bias_backward(stream, grad_scale, pending.scaled);
}

}  // namespace jige::model
