// What is DoRA's in Projection.
#include <algorithm>

#include "model/projection.h"
#include "ops/dora.h"
#include "ops/elementwise.h"
#include "ops/linear.h"

namespace jige::model {

TensorView Projection::columns_of(const BlockWeights& weights, int64_t offset,
                                  const Part& part) const {
  check_place(weights, offset + outputs_ * 4);
  auto* const all = reinterpret_cast<float*>(static_cast<std::byte*>(weights.packed.data) + offset);
  return TensorView::of(all + part.row_begin, DType::kF32, Shape{part.rows});
}

void Projection::pack_squares(Stream& stream, const BlockWeights& weights, DType compute) const {
  const Packed& place = packed(compute, weights.format);
  for (const Part& part : parts_) {
    const TensorView& value = weights.params[part.weight].value;
    if (!part.adapted || !value) continue;
    ops::row_squares(stream, columns_of(weights, place.squares, part), value);
  }
}

void Projection::start_magnitudes(Stream& stream, const BlockWeights& weights,
                                  DType compute) const {
  if (!dora()) return;
  const Packed& place = packed(compute, weights.format);
  for (const Part& part : parts_) {
    const TensorView value = part.adapted ? weights.params[part.magnitude].value : TensorView{};
    if (value) ops::square_roots(stream, value, columns_of(weights, place.squares, part));
  }
}

void Projection::pack_factors(Stream& stream, const BlockWeights& weights, DType compute) const {
  const Packed& place = packed(compute, weights.format);
  check_place(weights, place.products + rank_ * outputs_ * 4);
  const TensorView products =
      TensorView::of(static_cast<std::byte*>(weights.packed.data) + place.products, DType::kF32,
                     Shape{rank_, outputs_});
  const bool biased = options_.bias;
  for (const Part& part : parts_) {
    if (!part.adapted || !weights.params[part.magnitude].value) continue;
    const TensorView& a = weights.params[part.adapter_a].value;
    ops::linear_forward(stream, {.dst = products,
                                 .src = a,
                                 .weight = whole_view(weights, compute, ops::PackUse::kForward)});
    ops::dora_factors(
        stream, {.factors = columns_of(weights, place.factors, part),
                 .addends = biased ? columns_of(weights, place.addends, part) : TensorView{},
                 .squares = columns_of(weights, place.squares, part),
                 .products = products.column_range(part.row_begin, part.row_begin + part.rows),
                 .a = a,
                 .b = weights.params[part.adapter_b].value,
                 .magnitude = weights.params[part.magnitude].value,
                 .bias = biased ? columns_of(weights, place.bias, part) : TensorView{},
                 .scale = adapter_scale_});
  }
}

int64_t Projection::magnitude_scratch_bytes(int64_t token_count) const {
  if (!dora()) return 0;
  int64_t widest = 0;
  for (const Part& part : parts_) widest = std::max(widest, part.rows);
  Placement at;
  at.take(DType::kF32, Shape{token_count, outputs_});
  at.take(DType::kF32, Shape{token_count, widest});
  return at.peak_bytes();
}

void Projection::magnitude_gradients(Stream& stream, const BlockWeights& weights, DType compute,
                                     const BackwardWeight& args) const {
  const Packed& place = packed(compute, weights.format);
  const auto use = ops::PackUse::kForward;
  const int64_t rows = args.src.rows();
  Placement at(args.scratch);
  const TensorView products = at.take(DType::kF32, Shape{rows, outputs_});
  ops::linear_forward(
      stream, {.dst = products, .src = args.src, .weight = whole_view(weights, compute, use)});
  const int64_t behind = at.offset();
  for (size_t i = 0; i < parts_.size(); ++i) {
    const Part& part = parts_[i];
    const TensorView grad = part.adapted ? weights.params[part.magnitude].grad : TensorView{};
    if (!grad) continue;
    at.rewind(behind);
    const TensorView delta = at.take(DType::kF32, Shape{rows, part.rows});
    const TensorView z = products.column_range(part.row_begin, part.row_begin + part.rows);
    ops::linear_forward(
        stream,
        {.dst = delta,
         .src = args.product_forward.column_range(part.adapter_row, part.adapter_row + rank_),
         .weight = adapter_view(weights, compute, use, place.adapter_b_forward[i],
                                Shape{part.rows, rank_})});
    ops::add(stream, z, z, delta);
    ops::dora_magnitude_backward(
        stream, grad, args.grad_dst.column_range(part.row_begin, part.row_begin + part.rows), z,
        weights.params[part.magnitude].value);
  }
}

}  // namespace jige::model
