#include "model/expert_mlp.h"

#include <algorithm>
#include <cmath>

#include "ops/elementwise.h"
#include "ops/expert_balance.h"

namespace jige::model {

ExpertMlp::ExpertMlp(const formats::ModelConfig& config, const ExpertNames& names,
                     double output_std, DeviceKind device, std::vector<ParamSpec>& params)
    : width_(config.hidden_size), experts_(config.experts), activation_(config.activation) {
  const bool gate = experts_.shared_gate;
  router_ = Projection({.parts = fused_parts(gate ? std::vector{names.router, names.shared_gate}
                                                  : std::vector{names.router},
                                             {experts_.count, gate ? 1 : 0}),
                        .inputs = width_,
                        .bias = experts_.biases,
                        .whole = true,
                        .device = device},
                       params);
  if (experts_.choice_bias) {
    choice_bias_ = params.size();
    params.push_back({.name = names.choice_bias,
                      .shape = Shape{experts_.count},
                      .init = InitKind::kZero,
                      .fixed = true,
                      .choice_bias = true,
                      .wide = true,
                      .as_row = names.choice_bias_as_row});
  }
  if (experts_.beside_mlp) {
    scales_ = params.size();
    params.push_back(
        {.name = names.scales, .shape = Shape{experts_.count}, .init = InitKind::kOne});
  }
  std::vector<ProjectionOptions::Part> inputs = {{names.up, experts_.ffn_size}};
  if (gated()) inputs.insert(inputs.begin(), {names.gate, experts_.ffn_size});
  input_ = ExpertBank({.prefix = names.prefix,
                       .parts = std::move(inputs),
                       .count = experts_.count,
                       .inputs = width_,
                       .bias = experts_.biases,
                       .stacked = names.stacked_input,
                       .stacked_usual = names.stacked_usual,
                       .stacked_in_turns = experts_.biases,
                       .stacked_transposed = names.stacked_transposed,
                       .device = device},
                      params);
  output_ = ExpertBank({.prefix = names.prefix,
                        .parts = {{names.down, width_}},
                        .count = experts_.count,
                        .inputs = experts_.ffn_size,
                        .bias = experts_.biases,
                        .init_std = output_std,
                        .stacked = names.stacked_output,
                        .stacked_usual = names.stacked_usual,
                        .stacked_in_turns = experts_.biases,
                        .stacked_transposed = names.stacked_transposed,
                        .device = device},
                       params);
  if (experts_.shared_ffn_size == 0) return;
  shared_.emplace(config,
                  DenseMlpOptions{.input = names.shared_input,
                                  .output = names.shared_output,
                                  .size = experts_.shared_ffn_size,
                                  .output_std = output_std,
                                  .device = device},
                  params);
}

std::vector<const Projection*> ExpertMlp::plain_projections() const {
  std::vector<const Projection*> all = {&router_};
  if (shared_) all.insert(all.end(), {&shared_->input(), &shared_->output()});
  return all;
}

TensorView ExpertMlp::of_experts(const TensorView& logits) const {
  return logits.column_range(0, experts_.count);
}

TensorView ExpertMlp::of_shared(const TensorView& logits) const {
  if (!experts_.shared_gate || !logits) return {};
  return logits.column_range(experts_.count, experts_.count + 1);
}

void ExpertMlp::plan_forward(Placement& at, DType compute, ops::WeightFormat format) {
  router_.plan_forward(at, compute, format);
  if (shared_) shared_->plan_forward(at, compute, format);
  input_.plan_forward(at, compute, format);
  output_.plan_forward(at, compute, format);
}

void ExpertMlp::plan_backward(Placement& at, DType compute, ops::WeightFormat format) {
  router_.plan_backward(at, compute, format);
  if (shared_) shared_->plan_backward(at, compute, format);
  input_.plan_backward(at, compute, format);
  output_.plan_backward(at, compute, format);
}

void ExpertMlp::pack(Stream& stream, const BlockWeights& weights, DType compute,
                     PackFor use) const {
  for (const Projection* p : plain_projections()) p->pack(stream, weights, compute, use);
  input_.pack(stream, weights, compute, use);
  output_.pack(stream, weights, compute, use);
}

void ExpertMlp::list_packs(const BlockWeights& weights, size_t param, DType compute, PackFor use,
                           std::vector<ops::PackPart>& packs) const {
  for (const Projection* p : plain_projections()) {
    p->list_packs(weights, param, compute, use, packs);
  }
  input_.list_packs(weights, param, compute, use, packs);
  output_.list_packs(weights, param, compute, use, packs);
}

int64_t ExpertMlp::strip_bytes(DType compute) const {
  int64_t bytes = std::max(input_.strip_bytes(compute), output_.strip_bytes(compute));
  for (const Projection* p : plain_projections()) bytes = std::max(bytes, p->strip_bytes(compute));
  return bytes;
}

int64_t ExpertMlp::thread_scratch_bytes(int64_t token_count, DType compute, int threads,
                                        bool frozen_base) const {
  int64_t bytes =
      std::max(input_.thread_scratch_bytes(token_count, compute, threads, frozen_base),
               output_.thread_scratch_bytes(token_count, compute, threads, frozen_base));
  for (const Projection* p : plain_projections()) {
    bytes = std::max(bytes, p->thread_scratch_bytes(token_count, compute, threads, frozen_base));
  }
  return bytes;
}

double ExpertMlp::forward_flops(double token_count) const {
  const auto width = static_cast<double>(width_);
  const int64_t rows =
      router_.outputs() +
      (gated() ? 3 : 2) * (experts_.chosen * experts_.ffn_size + experts_.shared_ffn_size);
  return 2.0 * token_count * width * static_cast<double>(rows);
}

ExpertMlp::Saved ExpertMlp::place_saved(Placement& at, int64_t token_count, DType compute) const {
  const Shape places{token_count, experts_.chosen};
  Saved saved;
  ops::Routing& routing = saved.routing;
  saved.logits = at.take(DType::kF32, Shape{token_count, router_.outputs()});
  routing.logits = of_experts(saved.logits);
  routing.chosen = at.take(DType::kI32, places);
  routing.weights = at.take(DType::kF32, places);
  routing.row_of_place = at.take(DType::kI32, places);
  routing.place_of_row = at.take(DType::kI32, Shape{places.count()});
  routing.row_ends = at.take(DType::kI32, Shape{experts_.count});
  routing.normalised = experts_.normalised;
  routing.sigmoid = experts_.sigmoid_scores;
  routing.scale = static_cast<float>(experts_.weight_scale);
  routing.sum_offset = static_cast<float>(experts_.sum_offset);
  routing.sum_min = static_cast<float>(experts_.sum_min);
  routing.groups = experts_.groups;
  routing.chosen_groups = experts_.chosen_groups;
  routing.groups_by_pairs = experts_.groups_by_pairs;
  if (experts_.beside_mlp) routing.scaled_weights = at.take(DType::kF32, places);
  if (experts_.weighs_inputs) saved.tokens = at.take(compute, Shape{token_count, width_});
  saved.balance = at.take(DType::kF32, Shape{token_count});
  saved.ffn = at.take(compute, Shape{places.count(), input_.outputs()});
  if (shared_) saved.shared = shared_->place_saved(at, token_count, compute, true);
  return saved;
}

ExpertMlp::Pending ExpertMlp::place_pending(Placement& at, int64_t token_count,
                                            DType compute) const {
  Pending pending;
  pending.ffn = at.take(compute, Shape{token_count * experts_.chosen, input_.outputs()});
  pending.grad_logits = at.take(DType::kF32, Shape{token_count, router_.outputs()});
  if (experts_.beside_mlp) {
    pending.scale_slopes = at.take(DType::kF32, Shape{token_count, experts_.chosen});
  }
  if (shared_) pending.shared = shared_->place_pending(at, token_count, compute);
  return pending;
}

ExpertMlp::Work ExpertMlp::place_work(Placement& at, int64_t token_count, DType compute,
                                      bool training) const {
  const int64_t row_count = token_count * experts_.chosen;
  Work work;
  work.wide_rows = at.take(DType::kF32, Shape{row_count, width_});
  work.rows = TensorView::of(work.wide_rows.data, compute, Shape{row_count, width_});
  if (shared_) {
    work.shared_rows = at.take(DType::kF32, Shape{token_count, width_});
    work.shared_activated = at.take(compute, Shape{token_count, experts_.shared_ffn_size});
  }
  if (experts_.beside_mlp) work.router_rows = at.take(compute, Shape{token_count, width_});
  if (!training) return work;
  work.activated = at.take(compute, Shape{row_count, experts_.ffn_size});
  work.grad_tokens = at.take(DType::kF32, Shape{token_count, width_});
  work.grad_weights = at.take(DType::kF32, Shape{token_count, experts_.chosen});
  if (experts_.weighs_inputs) {
    work.tokens = at.take(DType::kF32, Shape{token_count, width_});
    work.gathered = at.take(DType::kF32, Shape{row_count, width_});
  }
  int64_t scratch = 0;
  for (const Projection* p : plain_projections()) {
    scratch = std::max(scratch, p->weight_scratch_bytes(token_count, compute));
  }
  if (scratch > 0) work.scratch = at.take(DType::kU8, Shape{scratch});
  return work;
}

void ExpertMlp::forward(Stream& stream, const BlockWeights& weights, DType compute,
                        const Result& result, const TensorView& src, const Saved& saved,
                        const Work& work) const {
  const ops::Routing routing = this->routing(weights, saved);
  router_.forward(stream, weights, compute, {.dst = saved.logits, .src = router_source(src, work)});
  scale_logits(stream, saved.logits);
  if (shared_) {
    shared_->forward(stream, weights, compute, work.shared_rows, src, saved.shared,
                     shared_work(saved, work, {}));
  }
  ops::route(stream, routing);
  // Where nobody wants the gate again, a takes its place.
  const TensorView activated =
      work.activated ? work.activated : saved.ffn.column_range(0, experts_.ffn_size);
  if (work.activated || !forward_gated(stream, weights, compute, routing, activated, src)) {
    ops::gather_rows(stream, routing, work.rows, src);
    if (experts_.weighs_inputs) {
      ops::weigh_rows(stream, routing, work.rows);
      ops::scale(stream, saved.tokens, src, 1.0f);
    }
    input_.forward(stream, weights, compute,
                   {.dst = saved.ffn,
                    .src = work.rows,
                    .row_ends = routing.row_ends,
                    .token_count = routing.token_count()});
    activate(stream, weights, compute, routing, activated, saved.ffn);
  }
  output_.forward(stream, weights, compute,
                  {.dst = work.wide_rows,
                   .src = activated,
                   .row_ends = routing.row_ends,
                   .token_count = routing.token_count()});
  if (experts_.biases) {
    ops::add_biases(stream, routing, work.wide_rows, output_.biases(weights, compute));
  }
  ops::combine_rows(stream, routing, result.dst, work.wide_rows,
                    experts_.weighs_inputs ? ops::RowWeights::kOnes : ops::RowWeights::kRouter,
                    work.shared_rows, result.addend);
}

bool ExpertMlp::forward_gated(Stream& stream, const BlockWeights& weights, DType compute,
                              const ops::Routing& routing, const TensorView& dst,
                              const TensorView& src) const {
  if (!gated() || experts_.weighs_inputs) return false;
  const bool gelu = activation_ == formats::ActivationKind::kGeGlu;
  return input_.forward_gated(stream, weights, compute,
                              {.dst = dst,
                               .src = src,
                               .weights = {},
                               .routing = routing,
                               .unit = gelu ? ops::GatedUnit::kGeGlu : ops::GatedUnit::kSwiGlu,
                               .bounded = bounded() ? gate(weights, compute) : ops::BoundedGate{}});
}

ops::Routing ExpertMlp::routing(const BlockWeights& weights, const Saved& saved) const {
  ops::Routing routing = saved.routing;
  if (experts_.choice_bias) routing.choice_bias = weights.params[choice_bias_].value;
  if (experts_.beside_mlp) routing.scales = weights.params[scales_].value;
  return routing;
}

void ExpertMlp::scale_logits(Stream& stream, const TensorView& logits) const {
  if (!experts_.beside_mlp) return;
  ops::scale(stream, logits, logits, 1.0f / std::sqrt(static_cast<float>(width_)));
}

DenseMlp::Work ExpertMlp::shared_work(const Saved& saved, const Work& work,
                                      const TensorView& grad_logits) const {
  return {.activated = work.shared_activated,
          .weight_scratch = work.scratch,
          .row_logits = of_shared(saved.logits),
          .grad_row_logits = of_shared(grad_logits)};
}

void ExpertMlp::backward_router(Stream& stream, const Batch& batch, const ops::Routing& routing,
                                const Saved& saved, const Pending& pending,
                                const Work& work) const {
  const TensorView grad_logits = of_experts(pending.grad_logits);
  ops::route_backward(stream, routing, grad_logits, work.grad_weights);
  if (batch.balance_weight > 0) {
    ops::balance_experts(stream, routing,
                         {.losses = saved.balance,
                          .grad_logits = grad_logits,
                          .weight = batch.balance_weight,
                          .sequences = batch.sequences});
  }
  scale_logits(stream, pending.grad_logits);
}

void ExpertMlp::backward_input(Stream& stream, const BlockWeights& weights, DType compute,
                               const Batch& batch, const TensorView& grad_src,
                               const TensorView& grad_dst, const Saved& saved,
                               const Pending& pending, const Work& work) const {
  const ops::Routing routing = this->routing(weights, saved);
  ops::gather_rows(stream, routing, work.rows, grad_dst);
  output_.backward_input(stream, weights, compute,
                         {.dst = work.activated,
                          .src = work.rows,
                          .row_ends = routing.row_ends,
                          .token_count = routing.token_count()});
  if (experts_.weighs_inputs) {
    backward_weighed(stream, weights, compute, routing, saved, pending, work);
  } else {
    backward_weighing(stream, weights, compute, routing, saved, pending, work);
  }
  backward_router(stream, batch, routing, saved, pending, work);
  if (shared_) {
    shared_->backward_input(stream, weights, compute, work.shared_rows, grad_dst, saved.shared,
                            pending.shared, shared_work(saved, work, pending.grad_logits));
  }
  router_.backward_input(stream, weights, compute,
                         {.grad_src = work.grad_tokens, .grad_dst = pending.grad_logits});
  if (shared_) ops::add(stream, work.grad_tokens, work.grad_tokens, work.shared_rows);
  ops::combine_rows(stream, routing, grad_src, work.wide_rows,
                    experts_.weighs_inputs ? ops::RowWeights::kRouter : ops::RowWeights::kOnes,
                    experts_.beside_mlp ? TensorView{} : work.grad_tokens);
}

void ExpertMlp::backward_weighing(Stream& stream, const BlockWeights& weights, DType compute,
                                  const ops::Routing& routing, const Saved& saved,
                                  const Pending& pending, const Work& work) const {
  const TensorView gates = saved.ffn.column_range(0, experts_.ffn_size);
  // a, for the router, stands for now where its gradient will.
  const TensorView activated = pending.ffn.column_range(0, experts_.ffn_size);
  activate(stream, weights, compute, routing, activated, saved.ffn);
  ops::dot_rows(stream, routing, work.grad_weights, work.activated, activated);
  if (experts_.biases) {
    ops::dot_biases(stream, routing, work.grad_weights, work.rows,
                    output_.biases(weights, compute));
  }
  if (experts_.beside_mlp) {
    ops::scale_slopes(stream, routing, work.grad_weights, pending.scale_slopes);
  }
  ops::weigh_rows(stream, routing, work.activated);
  backward_activate(stream, weights, compute, routing, pending.ffn, work.activated, saved.ffn);
  ops::weigh_rows(stream, routing, gates);
  input_.backward_input(stream, weights, compute,
                        {.dst = work.wide_rows,
                         .src = pending.ffn,
                         .row_ends = routing.row_ends,
                         .token_count = routing.token_count()});
}

void ExpertMlp::backward_weighed(Stream& stream, const BlockWeights& weights, DType compute,
                                 const ops::Routing& routing, const Saved& saved,
                                 const Pending& pending, const Work& work) const {
  backward_activate(stream, weights, compute, routing, pending.ffn, work.activated, saved.ffn);
  input_.backward_input(stream, weights, compute,
                        {.dst = work.wide_rows,
                         .src = pending.ffn,
                         .row_ends = routing.row_ends,
                         .token_count = routing.token_count()});
  ops::scale(stream, work.tokens, saved.tokens, 1.0f);
  ops::gather_rows(stream, routing, work.gathered, work.tokens);
  ops::dot_rows(stream, routing, work.grad_weights, work.wide_rows, work.gathered);
}

void ExpertMlp::activate(Stream& stream, const BlockWeights& weights, DType compute,
                         const ops::Routing& routing, const TensorView& dst,
                         const TensorView& ffn) const {
  if (!gated()) {
    ops::activation_forward(stream, dst, ffn, plain_activation(activation_));
  } else if (bounded()) {
    ops::bounded_gate(stream, routing, gate(weights, compute), dst, ffn);
  } else if (activation_ == formats::ActivationKind::kGeGlu) {
    ops::geglu_forward(stream, dst, ffn);
  } else {
    ops::swiglu_forward(stream, dst, ffn);
  }
}

void ExpertMlp::backward_activate(Stream& stream, const BlockWeights& weights, DType compute,
                                  const ops::Routing& routing, const TensorView& grad_ffn,
                                  const TensorView& grad_activated, const TensorView& ffn) const {
  const TensorView gates = ffn.column_range(0, experts_.ffn_size);
  if (!gated()) {
    ops::activation_backward(stream, grad_ffn, grad_activated, ffn, plain_activation(activation_));
    ops::activation_forward(stream, ffn, ffn, plain_activation(activation_));
  } else if (bounded()) {
    ops::bounded_gate_backward(
        stream, routing, gate(weights, compute),
        {.grad_gate_up = grad_ffn, .grad_dst = grad_activated, .gate_up = ffn, .activated = gates});
  } else if (activation_ == formats::ActivationKind::kGeGlu) {
    ops::geglu_backward(stream, grad_ffn, grad_activated, ffn, gates);
  } else {
    ops::swiglu_backward(stream, grad_ffn, grad_activated, ffn, gates);
  }
}

ops::BoundedGate ExpertMlp::gate(const BlockWeights& weights, DType compute) const {
  return {.biases = input_.biases(weights, compute),
          .alpha = static_cast<float>(experts_.gate_alpha),
          .limit = static_cast<float>(experts_.gate_limit)};
}

void ExpertMlp::add_bias_gradients(Stream& stream, const BlockWeights& weights,
                                   const TensorView& grad_dst, const Saved& saved,
                                   const Pending& pending, const Work& work) const {
  const ops::Routing& routing = saved.routing;
  ops::gather_rows(stream, routing, work.rows, grad_dst);
  ops::bias_gradients(stream, routing, output_.bias_gradients(weights, 0), work.rows,
                      ops::RowWeights::kRouter);
  for (size_t part = 0; part < 2; ++part) {
    const int64_t begin = static_cast<int64_t>(part) * experts_.ffn_size;
    ops::bias_gradients(stream, routing, input_.bias_gradients(weights, part),
                        pending.ffn.column_range(begin, begin + experts_.ffn_size),
                        ops::RowWeights::kOnes);
  }
}

bool ExpertMlp::wants_gradient(const BlockWeights& weights) const {
  const auto wants = [&](const Projection* p) { return p->wants_gradient(weights); };
  const bool scales = experts_.beside_mlp && weights.params[scales_].grad;
  return scales || std::ranges::any_of(plain_projections(), wants) ||
         input_.wants_gradient(weights) || output_.wants_gradient(weights);
}

void ExpertMlp::backward_weight(Stream& stream, const BlockWeights& weights, DType compute,
                                const TensorView& src, const TensorView& grad_dst,
                                GradientUse gradients, const Saved& saved, const Pending& pending,
                                const Work& work) const {
  const ops::Routing& routing = saved.routing;
  if (experts_.beside_mlp && weights.params[scales_].grad) {
    ops::scale_gradients(stream, routing, weights.params[scales_].grad, pending.scale_slopes);
  }
  if (experts_.biases && output_.wants_gradient(weights)) {
    add_bias_gradients(stream, weights, grad_dst, saved, pending, work);
  }
  if (output_.wants_gradient(weights)) {
    ops::gather_rows(stream, routing, work.rows, grad_dst);
    output_.backward_weight(stream, weights, compute,
                            {.grad_dst = work.rows,
                             .src = saved.ffn.column_range(0, experts_.ffn_size),  // X left w · a
                             .row_ends = routing.row_ends,
                             .gradients = gradients});
  }
  if (input_.wants_gradient(weights)) {
    ops::gather_rows(stream, routing, work.rows, src);
    if (experts_.weighs_inputs) ops::weigh_rows(stream, routing, work.rows);
    input_.backward_weight(stream, weights, compute,
                           {.grad_dst = pending.ffn,
                            .src = work.rows,
                            .row_ends = routing.row_ends,
                            .gradients = gradients});
  }
  if (shared_ && shared_->output().wants_gradient(weights)) {
    shared_->backward_output_weight(stream, weights, compute, grad_dst, gradients, saved.shared,
                                    pending.shared, shared_work(saved, work, {}));
  }
  if (shared_ && shared_->input().wants_gradient(weights)) {
    shared_->backward_input_weight(stream, weights, compute, src, gradients, saved.shared,
                                   pending.shared, shared_work(saved, work, {}));
  }
  if (router_.wants_gradient(weights)) {
    router_.backward_weight(stream, weights, compute,
                            {.grad_dst = pending.grad_logits,
                             .src = router_source(src, work),
                             .scratch = work.scratch,
                             .gradients = gradients});
  }
}

}  // namespace jige::model
