// X and W of Projection.
#include <algorithm>
#include <utility>
#include <vector>

#include "model/projection.h"
#include "ops/elementwise.h"
#include "ops/linear.h"

namespace jige::model {
namespace {

// The columns [begin, begin + count) of a matrix.
TensorView columns_at(const TensorView& matrix, int64_t begin, int64_t count) {
  return matrix.column_range(begin, begin + count);
}

// Sets the other rows to zero.
void zero_others(Stream& stream, const TensorView& matrix, const std::vector<ops::RowRange>& rows) {
  int64_t end = 0;
  for (const ops::RowRange& range : rows) {
    if (range.begin > end) ops::zero(stream, matrix.row_range(end, range.begin));
    end = range.end;
  }
  if (end < matrix.rows()) ops::zero(stream, matrix.row_range(end, matrix.rows()));
}

}  // namespace

void Projection::backward_input(Stream& stream, const BlockWeights& weights, DType compute,
                                const BackwardInput& args) const {
  const Packed& place = packed(compute, weights.format);
  const auto use = ops::PackUse::kInputGradient;
  apply_scales(stream, args.grad_dst);
  for (const Part& part : parts_) {
    if (!dora() || !part.adapted) continue;
    const TensorView columns = columns_at(args.grad_dst, part.row_begin, part.rows);
    ops::scale_columns(stream, columns, columns, columns_of(weights, place.factors, part), {});
  }
  ops::linear_backward_input(stream, {.grad_src = args.grad_src,
                                      .grad_dst = args.grad_dst,
                                      .weight = whole_view(weights, compute, use),
                                      .past_caches = args.past_caches,
                                      .strip = weights.strip});
  if (!adapted()) return;
  for (size_t i = 0; i < parts_.size(); ++i) {
    const Part& part = parts_[i];
    if (!part.adapted) continue;
    const auto b =
        adapter_view(weights, compute, use, place.adapter_b_backward[i], Shape{part.rows, rank_});
    ops::linear_backward_input(stream,
                               {.grad_src = columns_at(args.product, part.adapter_row, rank_),
                                .grad_dst = columns_at(args.grad_dst, part.row_begin, part.rows),
                                .weight = b});
  }
  ops::scale(stream, args.product, args.product, adapter_scale_);
  const TensorView delta =
      TensorView::of(args.scratch.data, args.grad_src.dtype, args.grad_src.shape);
  const Shape a_shape{adapter_rows_, options_.inputs};
  ops::linear_backward_input(
      stream, {.grad_src = delta,
               .grad_dst = args.product,
               .weight = adapter_view(weights, compute, use, place.adapter_a_backward, a_shape)});
  if (args.dropout.rate > 0) {
    ops::dropout(stream, delta, delta, args.dropout, dropout_site_);
  }
  ops::add(stream, args.grad_src, args.grad_src, delta);
}

bool Projection::wants_gradient(const BlockWeights& weights) const {
  return std::any_of(parts_.begin(), parts_.end(), [&](const Part& part) {
    return weights.params[part.weight].grad || (part.bias && weights.params[*part.bias].grad) ||
           (part.adapted &&
            (weights.params[part.adapter_a].grad || weights.params[part.adapter_b].grad ||
             (dora() && weights.params[part.magnitude].grad)));
  });
}

void Projection::backward_weight(Stream& stream, const BlockWeights& weights, DType compute,
                                 const BackwardWeight& args) const {
  weight_gradients(stream, weights, compute, args);
  if (adapted()) adapter_gradients(stream, weights, compute, args);
  if (options_.bias) bias_gradients(stream, weights, args.grad_dst);
}

void Projection::bias_gradients(Stream& stream, const BlockWeights& weights,
                                const TensorView& grad_dst) const {
  for (const Part& part : parts_) {
    if (!part.bias) continue;
    const TensorView& grad = weights.params[*part.bias].grad;
    if (!grad) continue;
    const TensorView columns = columns_at(grad_dst, part.row_begin, part.rows);
    if (bias_scale_ != 1.0f) ops::scale(stream, columns, columns, bias_scale_);
    ops::bias_backward(stream, grad, columns);
  }
}

void Projection::weight_gradients(Stream& stream, const BlockWeights& weights, DType compute,
                                  const BackwardWeight& args) const {
  // Parts whose gradients lie next to each other in memory are one product.
  for (size_t first = 0; first < parts_.size();) {
    TensorView grad = weights.params[parts_[first].weight].grad;
    size_t last = first + 1;
    if (!grad) {
      first = last;
      continue;
    }
    int64_t rows = parts_[first].rows;
    const auto adjoins = [&](size_t part) {
      const TensorView& next = weights.params[parts_[part].weight].grad;
      return next && next.as<float>() == grad.as<float>() + rows * options_.inputs;
    };
    for (; last < parts_.size() && adjoins(last); ++last) rows += parts_[last].rows;
    grad = TensorView::of(grad.data, grad.dtype, Shape{rows, options_.inputs});
    const ops::LinearBackwardWeight product = {
        .grad_weight = grad,
        .grad_dst = columns_at(args.grad_dst, parts_[first].row_begin, rows),
        .src = args.src,
        .compute = compute,
        .scratch = args.scratch,
        .accumulate = args.gradients == GradientUse::kAdd};
    std::vector<ops::RowRange> kept = computed_rows(weights, first, last);
    if (kept.size() == 1 && kept.front().count() == rows) {
      ops::linear_backward_weight(stream, product);
    } else {
      if (!product.accumulate) zero_others(stream, grad, kept);
      if (!kept.empty()) ops::linear_backward_weight_rows(stream, product, std::move(kept));
    }
    first = last;
  }
}

std::vector<ops::RowRange> Projection::computed_rows(const BlockWeights& weights, size_t first,
                                                     size_t last) const {
  std::vector<ops::RowRange> kept;
  for (size_t i = first; i < last; ++i) {
    const int64_t begin = parts_[i].row_begin - parts_[first].row_begin;
    const auto* const rows = weights.params[parts_[i].weight].grad_rows;
    if (!rows) ops::append_rows(kept, {begin, begin + parts_[i].rows});
    for (size_t k = 0; rows && k < rows->size(); ++k) {
      ops::append_rows(kept, {begin + (*rows)[k].begin, begin + (*rows)[k].end});
    }
  }
  return kept;
}

void Projection::adapter_gradients(Stream& stream, const BlockWeights& weights, DType compute,
                                   const BackwardWeight& args) const {
  if (dora()) magnitude_gradients(stream, weights, compute, args);
  TensorView scratch = args.scratch;
  const TensorView src = dropped(stream, args.src, args.dropout, scratch);
  for (const Part& part : parts_) {
    if (!part.adapted) continue;
    const TensorView& grad_a = weights.params[part.adapter_a].grad;
    const TensorView& grad_b = weights.params[part.adapter_b].grad;
    if (grad_b) {
      ops::linear_backward_weight(stream,
                                  {.grad_weight = grad_b,
                                   .grad_dst = columns_at(args.grad_dst, part.row_begin, part.rows),
                                   .src = columns_at(args.product_forward, part.adapter_row, rank_),
                                   .compute = compute,
                                   .scratch = scratch,
                                   .accumulate = args.gradients == GradientUse::kAdd});
    }
    if (grad_a) {
      ops::linear_backward_weight(
          stream, {.grad_weight = grad_a,
                   .grad_dst = columns_at(args.product_backward, part.adapter_row, rank_),
                   .src = src,
                   .compute = compute,
                   .scratch = scratch,
                   .accumulate = args.gradients == GradientUse::kAdd});
    }
  }
}

}  // namespace jige::model
