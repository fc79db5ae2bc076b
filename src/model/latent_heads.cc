#include "model/latent_heads.h"

#include <utility>

#include "base/check.h"
#include "model/adapter.h"
#include "model/tensor_convert.h"
#include "ops/head_parts.h"
#include "ops/linear.h"

namespace jige::model {
namespace {

// Rows [begin, begin + count) of a matrix without gaps.
TensorView rows_at(const TensorView& matrix, int64_t begin, int64_t count) {
  return matrix.row_range(begin, begin + count);
}

ops::PackedWeight forward_weight(void* data, DType compute, int64_t n, int64_t k) {
  return {.data = data, .compute = compute, .use = ops::PackUse::kForward, .n = n, .k = k};
}

// A matrix turned, in memory of its own.
struct Turned {
  std::vector<std::byte> memory;
  TensorView view;

  explicit Turned(const TensorView& matrix)
      : memory(static_cast<size_t>(dtype_bytes(matrix.dtype, matrix.count()))),
        view(TensorView::of(memory.data(), matrix.dtype, Shape{matrix.columns(), matrix.rows()})) {
    transpose_into(view, matrix);
  }
};

// The adapters of a step that change a head's products, by head `head` of `part`.
using HeadWeights = std::vector<std::shared_ptr<const ops::LowRankWeight>> HeadLowRank::*;

void add_head_adapters(const BlockContext& context, const Projection& up, HeadWeights part,
                       int64_t head, const TensorView& dst, const TensorView& src) {
  if (!context.adapters) return;
  std::vector<ops::LowRankRows> rows;
  for (const AdapterRows& range : context.adapters->rows) {
    const auto heads = range.adapter->find_heads(up);
    if (!heads) continue;
    rows.push_back({((*heads).*part)[static_cast<size_t>(head)], range.row_begin, range.row_end});
  }
  if (rows.empty()) return;
  ops::low_rank_forward(context.stream, {.dst = dst,
                                         .src = src,
                                         .product = context.adapters->product,
                                         .scratch = context.adapters->scratch,
                                         .rows = std::move(rows)});
}

}  // namespace

LatentHeads::LatentHeads(const HeadRows& rows, int64_t rank, int64_t shared, size_t weight)
    : rows_(rows), rank_(rank), shared_(shared), weight_(weight) {}

void LatentHeads::plan(Placement& at, DType compute, ops::WeightFormat format) {
  Places& places = places_[pack_layout(compute, format)];
  for (int64_t head = 0; head < rows_.heads; ++head) {
    places.keys.push_back(at.take_bytes(
        ops::packed_weight_bytes(compute, ops::PackUse::kInputGradient, rows_.own, rank_)));
    places.values.push_back(at.take_bytes(
        ops::packed_weight_bytes(compute, ops::PackUse::kForward, rows_.value, rank_)));
  }
}

ops::PackedWeight LatentHeads::key_view(const BlockWeights& weights, DType compute,
                                        int64_t head) const {
  const Places& places = places_[pack_layout(compute, weights.format)];
  const int64_t at = places.keys[static_cast<size_t>(head)];
  return {.data = static_cast<std::byte*>(weights.packed.data) + at,
          .compute = compute,
          .use = ops::PackUse::kInputGradient,
          .n = rows_.own,
          .k = rank_};
}

ops::PackedWeight LatentHeads::value_view(const BlockWeights& weights, DType compute,
                                          int64_t head) const {
  const Places& places = places_[pack_layout(compute, weights.format)];
  const int64_t at = places.values[static_cast<size_t>(head)];
  return forward_weight(static_cast<std::byte*>(weights.packed.data) + at, compute, rows_.value,
                        rank_);
}

void LatentHeads::pack(Stream& stream, const BlockWeights& weights, DType compute) const {
  const TensorView& value = weights.params[weight_].value;
  if (!value) return;
  for (int64_t head = 0; head < rows_.heads; ++head) {
    const int64_t row = head * (rows_.own + rows_.value);
    ops::pack_weight(stream, key_view(weights, compute, head), rows_at(value, row, rows_.own));
    ops::pack_weight(stream, value_view(weights, compute, head),
                     rows_at(value, row + rows_.own, rows_.value));
  }
}

void LatentHeads::queries(const BlockContext& context, const BlockWeights& weights,
                          const Projection& up, const TensorView& dst, const TensorView& q) const {
  const int64_t q_width = rows_.own + shared_;
  for (int64_t head = 0; head < rows_.heads; ++head) {
    const TensorView from = q.column_range(head * q_width, head * q_width + rows_.own);
    const TensorView to = dst.column_range(head * width(), head * width() + rank_);
    ops::linear_backward_input(
        context.stream,
        {.grad_src = to, .grad_dst = from, .weight = key_view(weights, context.compute, head)});
    add_head_adapters(context, up, &HeadLowRank::queries, head, to, from);
  }
  ops::fit_heads(context.stream, {.dst = dst,
                                  .src = q,
                                  .head_count = rows_.heads,
                                  .dst_first = rank_,
                                  .src_first = rows_.own});
}

void LatentHeads::values(const BlockContext& context, const BlockWeights& weights,
                         const Projection& up, const TensorView& dst, const TensorView& src) const {
  for (int64_t head = 0; head < rows_.heads; ++head) {
    const TensorView from = src.column_range(head * width(), head * width() + rank_);
    const TensorView to = dst.column_range(head * rows_.value, (head + 1) * rows_.value);
    ops::linear_forward(
        context.stream,
        {.dst = to, .src = from, .weight = value_view(weights, context.compute, head)});
    add_head_adapters(context, up, &HeadLowRank::values, head, to, from);
  }
}

HeadLowRank HeadLowRank::place(const HeadRows& rows, int64_t inputs, int64_t adapter_rank,
                               float scale, DType compute, std::byte* memory, int64_t& at) {
  Placement places;
  places.take_bytes(at);
  const auto take = [&](int64_t n, int64_t k) {
    const int64_t offset =
        places.take_bytes(ops::packed_weight_bytes(compute, ops::PackUse::kForward, n, k));
    return forward_weight(memory ? memory + offset : nullptr, compute, n, k);
  };
  HeadLowRank result;
  const auto add = [&](auto& to, const ops::PackedWeight& a, const ops::PackedWeight& b) {
    to.push_back(std::make_shared<const ops::LowRankWeight>(
        ops::LowRankWeight{.a = a, .scale = scale, .parts = {{.b = b}}}));
  };
  const ops::PackedWeight a = take(adapter_rank, inputs);
  const ops::PackedWeight a_turned = take(inputs, adapter_rank);
  for (int64_t head = 0; head < rows.heads; ++head) {
    add(result.queries, take(adapter_rank, rows.own), a_turned);
    add(result.values, a, take(rows.value, adapter_rank));
  }
  at = places.offset();
  return result;
}

void HeadLowRank::pack(Stream& stream, const HeadRows& rows, const TensorView& a,
                       const TensorView& b) const {
  const Turned a_turned(a);
  ops::pack_weight(stream, values.front()->a, a);
  ops::pack_weight(stream, queries.front()->parts.front().b, a_turned.view);
  for (int64_t head = 0; head < rows.heads; ++head) {
    const auto i = static_cast<size_t>(head);
    const int64_t row = head * (rows.own + rows.value);
    const Turned key(rows_at(b, row, rows.own));
    ops::pack_weight(stream, queries[i]->a, key.view);
    ops::pack_weight(stream, values[i]->parts.front().b, rows_at(b, row + rows.own, rows.value));
    stream.synchronize();
  }
}

}  // namespace jige::model
