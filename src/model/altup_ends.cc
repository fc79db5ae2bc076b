#include "model/altup_ends.h"

#include <algorithm>

#include "ops/elementwise.h"
#include "ops/row_spread.h"

namespace jige::model {

StreamEnd::StreamEnd(const formats::ModelConfig& config, const std::string& prefix,
                     DeviceKind device, std::vector<ParamSpec>& params)
    : layout_(config), width_(config.hidden_size), count_(config.altup.streams) {
  for (int64_t k = 1; k < count_; ++k) {
    const std::string name = prefix + "." + std::to_string(k - 1);
    projections_.push_back(
        Projection({.parts = {{name, width_}}, .inputs = width_, .device = device}, params));
  }
}

void StreamEnd::plan_forward(Placement& at, DType compute, ops::WeightFormat format) {
  for (Projection& one : projections_) one.plan_forward(at, compute, format);
}

void StreamEnd::plan_backward(Placement& at, DType compute, ops::WeightFormat format) {
  for (Projection& one : projections_) one.plan_backward(at, compute, format);
}

void StreamEnd::pack(Stream& stream, const BlockWeights& weights, DType compute,
                     PackFor use) const {
  for (const Projection& one : projections_) one.pack(stream, weights, compute, use);
}

void StreamEnd::list_packs(const BlockWeights& weights, size_t param, DType compute, PackFor use,
                           std::vector<ops::PackPart>& packs) const {
  for (const Projection& one : projections_) one.list_packs(weights, param, compute, use, packs);
}

int64_t StreamEnd::strip_bytes(DType compute) const {
  return projections_.front().strip_bytes(compute);
}

int64_t StreamEnd::thread_scratch_bytes(int64_t token_count, DType compute, int threads,
                                        bool frozen_base) const {
  return projections_.front().thread_scratch_bytes(token_count, compute, threads, frozen_base);
}

double StreamEnd::forward_flops(double token_count) const {
  const auto width = static_cast<double>(width_);
  return 2.0 * token_count * width * width * static_cast<double>(count_ - 1);
}

StreamEnd::Work StreamEnd::place_work(Placement& at, int64_t token_count, DType compute,
                                      bool training) const {
  Work work;
  work.wide = at.take(DType::kF32, Shape{token_count, width_});
  if (!training) return work;
  work.rows = at.take(compute, Shape{token_count, width_});
  const int64_t scratch = projections_.front().weight_scratch_bytes(token_count, compute);
  if (scratch > 0) work.scratch = at.take(DType::kU8, Shape{scratch});
  return work;
}

TensorView StreamEnd::place_pending(Placement& at, int64_t token_count, DType compute) const {
  return at.take(compute, Shape{token_count, (count_ - 1) * width_});
}

void StreamEnd::add_gradient(Stream& stream, const BlockWeights& weights, DType compute, int64_t k,
                             const TensorView& pending, const TensorView& src,
                             GradientUse gradients, const Work& work) const {
  if (!projection(k).wants_gradient(weights)) return;
  projection(k).backward_weight(
      stream, weights, compute,
      {.grad_dst = part(pending, k), .src = src, .scratch = work.scratch, .gradients = gradients});
}

StreamSplit::Saved StreamSplit::place_saved(Placement& at, int64_t token_count,
                                            DType compute) const {
  Saved saved;
  saved.rows = at.take(compute, Shape{token_count, width_});
  saved.products = at.take(DType::kF32, Shape{token_count, (count_ - 1) * width_});
  return saved;
}

void StreamSplit::forward(Stream& stream, const BlockWeights& weights, DType compute,
                          const TensorView& dst, const Saved& saved) const {
  ops::scale(stream, saved.rows, layout_.stream(dst, 0), 1.0f);
  for (int64_t k = 1; k < count_; ++k) {
    const TensorView product = part(saved.products, k);
    projection(k).forward(stream, weights, compute, {.dst = product, .src = saved.rows});
    ops::row_match(stream, {.dst = layout_.stream(dst, k), .src = product, .target = saved.rows});
  }
}

void StreamSplit::backward_input(Stream& stream, const BlockWeights& weights, DType compute,
                                 const TensorView& grad_rows, const TensorView& grad_dst,
                                 const Saved& saved, const TensorView& pending,
                                 const Work& work) const {
  ops::scale(stream, grad_rows, layout_.stream(grad_dst, 0), 1.0f);
  for (int64_t k = 1; k < count_; ++k) {
    ops::row_match_backward(stream, {.grad_src = work.wide,
                                     .grad_target = grad_rows,
                                     .grad_dst = layout_.stream(grad_dst, k),
                                     .src = part(saved.products, k),
                                     .target = saved.rows});
    ops::scale(stream, part(pending, k), work.wide, 1.0f);
    projection(k).backward_input(stream, weights, compute,
                                 {.grad_src = work.rows, .grad_dst = part(pending, k)});
    ops::add(stream, grad_rows, grad_rows, work.rows);
  }
}

void StreamSplit::backward_weight(Stream& stream, const BlockWeights& weights, DType compute,
                                  GradientUse gradients, const Saved& saved,
                                  const TensorView& pending, const Work& work) const {
  for (int64_t k = 1; k < count_; ++k) {
    add_gradient(stream, weights, compute, k, pending, saved.rows, gradients, work);
  }
}

StreamMerge::Saved StreamMerge::place_saved(Placement& at, int64_t token_count,
                                            DType compute) const {
  Saved saved;
  saved.merged = at.take(DType::kF32, Shape{token_count, width_});
  saved.rows = at.take(compute, Shape{token_count, (count_ - 1) * width_});
  saved.products = at.take(DType::kF32, Shape{token_count, (count_ - 1) * width_});
  return saved;
}

void StreamMerge::forward(Stream& stream, const BlockWeights& weights, DType compute,
                          const TensorView& src, const Saved& saved, const Work& work) const {
  const TensorView first = layout_.stream(src, 0);
  ops::scale(stream, saved.merged, first, 1.0f);
  for (int64_t k = 1; k < count_; ++k) {
    const TensorView rows = part(saved.rows, k);
    const TensorView product = part(saved.products, k);
    ops::scale(stream, rows, layout_.stream(src, k), 1.0f);
    projection(k).forward(stream, weights, compute, {.dst = product, .src = rows});
    ops::row_match(stream, {.dst = work.wide, .src = product, .target = first});
    ops::add(stream, saved.merged, saved.merged, work.wide);
  }
  ops::scale(stream, saved.merged, saved.merged, 1.0f / static_cast<float>(count_));
}

void StreamMerge::backward_input(Stream& stream, const BlockWeights& weights, DType compute,
                                 const TensorView& grad_src, const TensorView& grad_merged,
                                 const TensorView& src, const Saved& saved,
                                 const TensorView& pending, const Work& work) const {
  const TensorView grad_first = layout_.stream(grad_src, 0);
  ops::scale(stream, grad_merged, grad_merged, 1.0f / static_cast<float>(count_));
  ops::scale(stream, grad_first, grad_merged, 1.0f);
  for (int64_t k = 1; k < count_; ++k) {
    ops::row_match_backward(stream, {.grad_src = work.wide,
                                     .grad_target = grad_first,
                                     .grad_dst = grad_merged,
                                     .src = part(saved.products, k),
                                     .target = layout_.stream(src, 0)});
    ops::scale(stream, part(pending, k), work.wide, 1.0f);
    projection(k).backward_input(stream, weights, compute,
                                 {.grad_src = work.rows, .grad_dst = part(pending, k)});
    ops::scale(stream, layout_.stream(grad_src, k), work.rows, 1.0f);
  }
}

void StreamMerge::backward_weight(Stream& stream, const BlockWeights& weights, DType compute,
                                  GradientUse gradients, const Saved& saved,
                                  const TensorView& pending, const Work& work) const {
  for (int64_t k = 1; k < count_; ++k) {
    add_gradient(stream, weights, compute, k, pending, part(saved.rows, k), gradients, work);
  }
}

}  // namespace jige::model
