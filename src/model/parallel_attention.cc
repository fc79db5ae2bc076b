#include "model/parallel_attention.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "ops/elementwise.h"

namespace jige::model {

ParallelAttention::ParallelAttention(Side first, Side second)
    : sides_{std::move(first), std::move(second)} {
  JIGE_CHECK(sides_[0].output.outputs() == sides_[1].output.outputs(), "sides of {} and {} columns",
             sides_[0].output.outputs(), sides_[1].output.outputs());
}

std::vector<const Projection*> ParallelAttention::projections() const {
  std::vector<const Projection*> all;
  for (const Side& side : sides_) {
    for (const Projection* projection : side.attention->projections()) all.push_back(projection);
    all.push_back(&side.output);
  }
  return all;
}

void ParallelAttention::plan_forward(Placement& at, DType compute, ops::WeightFormat format) {
  for (Side& side : sides_) {
    side.attention->plan_forward(at, compute, format);
    side.output.plan_forward(at, compute, format);
  }
}

void ParallelAttention::plan_backward(Placement& at, DType compute, ops::WeightFormat format) {
  for (Side& side : sides_) {
    side.attention->plan_backward(at, compute, format);
    side.output.plan_backward(at, compute, format);
  }
}

void ParallelAttention::pack(Stream& stream, const BlockWeights& weights, DType compute,
                             PackFor use) const {
  for (const Side& side : sides_) {
    side.attention->pack(stream, weights, compute, use);
    side.output.pack(stream, weights, compute, use);
  }
}

ParallelAttention::Activations ParallelAttention::place_activations(Placement& at,
                                                                    int64_t token_count,
                                                                    DType compute,
                                                                    bool saves) const {
  Activations views;
  const int64_t begin = at.offset();
  int64_t end = begin;
  for (size_t i = 0; i < kSides; ++i) {
    const Attention& attention = *sides_[i].attention;
    if (!saves) at.rewind(begin);
    const int64_t bytes =
        saves ? attention.saved_bytes(token_count, compute)
              : attention.workspace_bytes(token_count, compute, PackFor::kInference);
    views[i].attention = at.take(DType::kU8, Shape{bytes});
    views[i].attended = at.take(compute, Shape{token_count, attention.columns()});
    views[i].u = sides_[i].output.place_product(at, token_count, compute);
    end = std::max(end, at.offset());
  }
  at.rewind(end);
  return views;
}

ParallelAttention::Gradients ParallelAttention::place_pending(Placement& at, int64_t token_count,
                                                              DType compute) const {
  Gradients pending;
  for (size_t i = 0; i < kSides; ++i) {
    const int64_t bytes = sides_[i].attention->pending_bytes(token_count, compute);
    pending[i].attention = at.take(DType::kU8, Shape{bytes});
    pending[i].output = at.take(compute, Shape{token_count, columns()});
    pending[i].v = sides_[i].output.place_product(at, token_count, compute);
  }
  return pending;
}

ParallelAttention::Work ParallelAttention::place_work(Placement& at, int64_t token_count,
                                                      DType compute, PackFor use) const {
  Work work;
  work.sum = at.take(DType::kF32, Shape{token_count, columns()});
  if (use == PackFor::kInference) return work;
  int64_t bytes = 0;
  int64_t widest = 0;
  for (const Side& side : sides_) {
    bytes = std::max(bytes, side.attention->workspace_bytes(token_count, compute, use));
    widest = std::max(widest, side.attention->columns());
  }
  work.attention = at.take(DType::kU8, Shape{bytes});
  work.rows = at.take(compute, Shape{token_count, widest});
  work.grad_src = at.take(compute, Shape{token_count, columns()});
  return work;
}

int64_t ParallelAttention::thread_scratch_bytes(int64_t token_count) const {
  return std::max(sides_[0].attention->thread_scratch_bytes(token_count),
                  sides_[1].attention->thread_scratch_bytes(token_count));
}

double ParallelAttention::forward_flops(double token_count, double context_mean) const {
  return sides_[0].attention->forward_flops(token_count, context_mean) +
         sides_[1].attention->forward_flops(token_count, context_mean);
}

AttentionMemory ParallelAttention::side_memory(const AttentionMemory& memory,
                                               const SideActivations& views,
                                               const SideGradients& pending, const Work& work,
                                               bool saves) {
  return {.saved = saves ? views.attention : TensorView{},
          .pending = pending.attention,
          .workspace = saves ? work.attention : views.attention,
          .adapter_scratch = memory.adapter_scratch,
          .weight_scratch = memory.weight_scratch,
          .dropout = memory.dropout};
}

void ParallelAttention::forward(const BlockContext& context, const BlockWeights& weights,
                                const Batch& batch, const TensorView& src, const TensorView& dst,
                                const AttentionMemory& memory) const {
  const DType compute = context.compute;
  const auto [views, work] = place_forward(memory, batch.token_count(), compute);
  for (size_t i = 0; i < kSides; ++i) {
    sides_[i].attention->forward(context, weights, batch, src, views[i].attended,
                                 side_memory(memory, views[i], {}, work, bool(memory.saved)));
    sides_[i].output.forward(context.stream, weights, compute,
                             {.dst = i == 0 ? dst : work.sum,
                              .src = views[i].attended,
                              .product = views[i].u,
                              .scratch = memory.adapter_scratch,
                              .dropout = memory.dropout,
                              .adapters = context.adapters});
  }
  ops::add(context.stream, dst, dst, work.sum);
}

void ParallelAttention::backward_input(const BlockContext& context, const BlockWeights& weights,
                                       const Batch& batch, const TensorView& /*dst*/,
                                       const TensorView& grad_dst, const TensorView& grad_src,
                                       const AttentionMemory& memory) const {
  const DType compute = context.compute;
  const auto [saved, pending, work] = place_backward(memory, batch.token_count(), compute);
  for (size_t i = 0; i < kSides; ++i) {
    const TensorView grad_attended = first_columns(work.rows, sides_[i].attention->columns());
    ops::scale(context.stream, pending[i].output, grad_dst, 1.0f);
    sides_[i].output.backward_input(context.stream, weights, compute,
                                    {.grad_src = grad_attended,
                                     .grad_dst = pending[i].output,
                                     .product = pending[i].v,
                                     .scratch = memory.adapter_scratch,
                                     .dropout = memory.dropout});
    sides_[i].attention->backward_input(context, weights, batch, saved[i].attended, grad_attended,
                                        i == 0 ? grad_src : work.grad_src,
                                        side_memory(memory, saved[i], pending[i], work, true));
  }
  ops::add(context.stream, grad_src, grad_src, work.grad_src);
}

bool ParallelAttention::wants_source(const BlockWeights& weights) const {
  return sides_[0].attention->wants_source(weights) || sides_[1].attention->wants_source(weights);
}

void ParallelAttention::backward_weight(const BlockContext& context, const BlockWeights& weights,
                                        const Batch& batch, const TensorView& src,
                                        const AttentionMemory& memory) const {
  const DType compute = context.compute;
  const auto [saved, pending, work] = place_backward(memory, batch.token_count(), compute);
  for (size_t i = 0; i < kSides; ++i) {
    sides_[i].output.backward_weight(context.stream, weights, compute,
                                     {.grad_dst = pending[i].output,
                                      .src = saved[i].attended,
                                      .product_forward = saved[i].u,
                                      .product_backward = pending[i].v,
                                      .scratch = memory.weight_scratch,
                                      .dropout = memory.dropout,
                                      .gradients = context.gradients});
    sides_[i].attention->backward_weight(context, weights, batch, src,
                                         side_memory(memory, saved[i], pending[i], work, true));
  }
}

}  // namespace jige::model
