#include "model/layer_input.h"

#include <algorithm>

#include "ops/elementwise.h"
#include "ops/gate.h"

namespace jige::model {

LayerInput::LayerInput(const formats::ModelConfig& config, const LayerInputNames& names,
                       double output_std, DeviceKind device, std::vector<ParamSpec>& params)
    : width_(config.hidden_size), size_(config.layer_inputs.size) {
  gate_ = Projection({.parts = {{names.gate, size_}}, .inputs = width_, .device = device}, params);
  projection_ = Projection({.parts = {{names.projection, width_}},
                            .inputs = size_,
                            .init_std = output_std,
                            .device = device},
                           params);
  norm_ = NormLayer(config, names.norm, width_, false, params);
}

void LayerInput::plan_forward(Placement& at, DType compute, ops::WeightFormat format) {
  gate_.plan_forward(at, compute, format);
  projection_.plan_forward(at, compute, format);
}

void LayerInput::plan_backward(Placement& at, DType compute, ops::WeightFormat format) {
  gate_.plan_backward(at, compute, format);
  projection_.plan_backward(at, compute, format);
}

LayerInput::Saved LayerInput::place_saved(Placement& at, int64_t token_count, DType compute,
                                          bool stats) const {
  Saved saved;
  saved.rows = at.take(compute, Shape{token_count, width_});
  saved.gate = at.take(compute, Shape{token_count, size_});
  saved.result = at.take(compute, Shape{token_count, width_});
  if (stats) saved.stats = norm_.place_stats(at, token_count);
  return saved;
}

LayerInput::Pending LayerInput::place_pending(Placement& at, int64_t token_count,
                                              DType compute) const {
  Pending pending;
  pending.gate = at.take(compute, Shape{token_count, size_});
  pending.result = at.take(compute, Shape{token_count, width_});
  pending.after = at.take(compute, Shape{token_count, width_});
  return pending;
}

LayerInput::Work LayerInput::place_work(Placement& at, int64_t token_count, DType compute,
                                        bool training) const {
  Work work;
  work.gated = at.take(compute, Shape{token_count, size_});
  work.activated = at.take(compute, Shape{token_count, size_});
  work.rows = at.take(compute, Shape{token_count, width_});
  const int64_t scratch = std::max(gate_.weight_scratch_bytes(token_count, compute),
                                   projection_.weight_scratch_bytes(token_count, compute));
  if (training && scratch > 0) work.scratch = at.take(DType::kU8, Shape{scratch});
  return work;
}

void LayerInput::apply_gate(Stream& stream, const TensorView& input, const Saved& saved,
                            const Work& work) const {
  ops::activation_forward(stream, work.activated, saved.gate, ops::Activation::kGeluTanh);
  ops::gate_forward(stream, work.gated, work.activated, input, ops::GateKind::kPlain);
}

void LayerInput::forward(Stream& stream, const BlockWeights& weights, DType compute,
                         const TensorView& rows, std::span<const TensorView> targets,
                         const TensorView& input, const Saved& saved, const Work& work) const {
  ops::scale(stream, saved.rows, rows, 1.0f);
  gate_.forward(stream, weights, compute, {.dst = saved.gate, .src = saved.rows});
  apply_gate(stream, input, saved, work);
  projection_.forward(stream, weights, compute, {.dst = saved.result, .src = work.gated});
  norm_.forward(stream, weights, work.rows, saved.result, saved.stats);
  for (const TensorView& target : targets) ops::add(stream, target, target, work.rows);
}

void LayerInput::backward_input(Stream& stream, const BlockWeights& weights, DType compute,
                                const Gradients& gradients, const TensorView& input,
                                const Saved& saved, const Pending& pending,
                                const Work& work) const {
  ops::scale(stream, pending.after, gradients.result, 1.0f);
  norm_.backward_input(stream, weights, pending.result, pending.after, saved.result, saved.stats,
                       false);
  apply_gate(stream, input, saved, work);
  projection_.backward_input(stream, weights, compute,
                             {.grad_src = work.gated, .grad_dst = pending.result});
  ops::gate_backward(stream, work.gated, gradients.input, work.gated, work.activated, input,
                     ops::GateKind::kPlain);
  ops::activation_backward(stream, pending.gate, work.gated, saved.gate,
                           ops::Activation::kGeluTanh);
  gate_.backward_input(stream, weights, compute, {.grad_src = work.rows, .grad_dst = pending.gate});
  ops::add(stream, gradients.rows, gradients.rows, work.rows);
}

void LayerInput::backward_weight(Stream& stream, const BlockWeights& weights, DType compute,
                                 const TensorView& input, GradientUse gradients, const Saved& saved,
                                 const Pending& pending, const Work& work) const {
  norm_.backward_weight(stream, weights, pending.after, saved.result, saved.stats);
  if (projection_.wants_gradient(weights)) {
    apply_gate(stream, input, saved, work);
    projection_.backward_weight(stream, weights, compute,
                                {.grad_dst = pending.result,
                                 .src = work.gated,
                                 .scratch = work.scratch,
                                 .gradients = gradients});
  }
  if (!gate_.wants_gradient(weights)) return;
  gate_.backward_weight(stream, weights, compute,
                        {.grad_dst = pending.gate,
                         .src = saved.rows,
                         .scratch = work.scratch,
                         .gradients = gradients});
}

}  // namespace jige::model
