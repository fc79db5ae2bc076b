// Products of a projection of which some columns of a hidden width are left out: projection.h.
#include "model/projection.h"
#include "ops/elementwise.h"

namespace jige::model {

TensorView Projection::gradient_rows(const BlockWeights& weights, int64_t begin, int64_t count,
                                     bool of_bias) const {
  for (const Part& part : parts_) {
    if (begin < part.row_begin || begin + count > part.row_begin + part.rows) continue;
    if (of_bias && !part.bias) return {};
    const TensorView& grad = weights.params[of_bias ? *part.bias : part.weight].grad;
    if (!grad) return {};
    const int64_t row = begin - part.row_begin;
    if (!of_bias) return grad.row_range(row, row + count);
    return TensorView::of(grad.as<float>() + row, grad.dtype, Shape{count});
  }
  JIGE_CHECK(false, "rows [{}, {}) of {} are not of one part", begin, begin + count,
             options_.parts[0].name);
  return {};
}

void Projection::forward_kept(Stream& stream, const BlockWeights& weights, DType compute,
                              const Forward& args, const Kept& kept) const {
  JIGE_CHECK(may_keep(), "kept columns of {}", options_.parts[0].name);
  ops::kept_product(stream,
                    {.dst = args.dst,
                     .src = args.src,
                     .weight = whole_view(weights, compute, ops::PackUse::kForward),
                     .bias = bias_view(weights, compute),
                     .side = kept.side},
                    kept.columns);
  if (args.addend) ops::add(stream, args.dst, args.addend, args.dst);
}

void Projection::backward_input_kept(Stream& stream, const BlockWeights& weights, DType compute,
                                     const BackwardInput& args, const Kept& kept) const {
  ops::kept_product(stream,
                    {.dst = args.grad_src,
                     .src = args.grad_dst,
                     .weight = whole_view(weights, compute, ops::PackUse::kInputGradient),
                     .bias = {},
                     .side = kept.side},
                    kept.columns);
}

void Projection::backward_weight_kept(Stream& stream, const BlockWeights& weights, DType compute,
                                      const BackwardWeight& args, const Kept& kept) const {
  const bool outputs = kept.side == ops::KeptSide::kOutputs;
  const int64_t count = outputs ? kept.columns.size : outputs_;
  std::vector<TensorView> grads;
  for (int64_t row = 0; row < outputs_; row += count) {
    grads.push_back(gradient_rows(weights, row, count, false));
    // What is left out of all rows has a gradient of zeros.
    const bool stores = args.gradients == GradientUse::kStore;
    if (stores && grads.back()) ops::zero(stream, grads.back());
  }
  const auto parts = std::ssize(grads);
  ops::kept_weight_gradient(stream,
                            {.grads = std::move(grads),
                             .grad_dst = args.grad_dst,
                             .src = args.src,
                             .compute = compute,
                             .scratch = args.scratch,
                             .side = kept.side},
                            kept.columns);
  if (!options_.bias) return;
  if (!outputs) return bias_gradients(stream, weights, args.grad_dst);
  for (int64_t part = 0; part < parts; ++part) {
    const TensorView grad = gradient_rows(weights, part * count, count, true);
    const int64_t column = part * kept.columns.kept;
    if (!grad) continue;
    ops::kept_bias_gradient(
        stream, grad, args.grad_dst.column_range(column, column + kept.columns.kept), kept.columns);
  }
}

}  // namespace jige::model
