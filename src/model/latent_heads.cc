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
using HeadPart = std::vector<std::shared_ptr<const ops::LowRankWeight>> HeadLowRank::*;

// The first columns of heads.
struct HeadColumns {
  TensorView rows;
  int64_t count = 0;

  TensorView of(int64_t head, int64_t heads) const {
    const int64_t begin = head * (rows.columns() / heads);
    return rows.column_range(begin, begin + count);
  }
};

void add_head_adapters(const BlockContext& context, const Projection& up, HeadPart part,
                       const HeadColumns& dst, const HeadColumns& src) {
  if (!context.adapters) return;
  const int64_t heads = up.by_head()->heads;
  for (int64_t head = 0; head < heads; ++head) {
    std::vector<ops::LowRankRows> rows;
    for (const AdapterRows& range : context.adapters->rows) {
      const auto of_heads = range.adapter->find_heads(up);
      if (!of_heads) continue;
      rows.push_back(
          {((*of_heads).*part)[static_cast<size_t>(head)], range.row_begin, range.row_end});
    }
    if (rows.empty()) return;
    ops::low_rank_forward(context.stream, {.dst = dst.of(head, heads),
                                           .src = src.of(head, heads),
                                           .product = context.adapters->product,
                                           .scratch = context.adapters->scratch,
                                           .rows = std::move(rows)});
  }
}

}  // namespace

LatentHeads::LatentHeads(const HeadRows& rows, int64_t rank, int64_t shared, size_t weight,
                         DeviceKind device)
    : rows_(rows), rank_(rank), shared_(shared), weight_(weight), device_(device) {}

void LatentHeads::plan(Placement& at, DType compute, ops::WeightFormat format) {
  Places& places = places_[pack_layout(compute, format)];
  const auto take = [&](ops::PackUse use, int64_t n) {
    return at.take_bytes(
        ops::packed_weight_bytes(compute, use, n, rank_, ops::WeightFormat::kCompute, device_));
  };
  for (int64_t head = 0; head < rows_.heads; ++head) {
    const int64_t keys = take(ops::PackUse::kInputGradient, rows_.own);
    const int64_t values = take(ops::PackUse::kForward, rows_.value);
    if (head == 0) places = {.keys = keys, .values = values, .step = at.offset() - keys};
  }
}

ops::HeadWeights LatentHeads::key_views(const BlockWeights& weights, DType compute) const {
  const Places& places = places_[pack_layout(compute, weights.format)];
  return {.first = {.data = static_cast<std::byte*>(weights.packed.data) + places.keys,
                    .compute = compute,
                    .use = ops::PackUse::kInputGradient,
                    .n = rows_.own,
                    .k = rank_,
                    .device = device_},
          .step_bytes = places.step,
          .count = rows_.heads};
}

ops::HeadWeights LatentHeads::value_views(const BlockWeights& weights, DType compute) const {
  const Places& places = places_[pack_layout(compute, weights.format)];
  return {.first = {.data = static_cast<std::byte*>(weights.packed.data) + places.values,
                    .compute = compute,
                    .use = ops::PackUse::kForward,
                    .n = rows_.value,
                    .k = rank_,
                    .device = device_},
          .step_bytes = places.step,
          .count = rows_.heads};
}

void LatentHeads::pack(Stream& stream, const BlockWeights& weights, DType compute) const {
  const TensorView& value = weights.params[weight_].value;
  if (!value) return;
  const ops::HeadWeights keys = key_views(weights, compute);
  const ops::HeadWeights values = value_views(weights, compute);
  for (int64_t head = 0; head < rows_.heads; ++head) {
    const int64_t row = head * (rows_.own + rows_.value);
    ops::pack_head_weight(stream, keys, head, rows_at(value, row, rows_.own));
    ops::pack_head_weight(stream, values, head, rows_at(value, row + rows_.own, rows_.value));
  }
}

void LatentHeads::queries(const BlockContext& context, const BlockWeights& weights,
                          const Projection& up, const TensorView& dst, const TensorView& q) const {
  ops::head_linear(context.stream,
                   {.dst = dst, .src = q, .weights = key_views(weights, context.compute)});
  add_head_adapters(context, up, &HeadLowRank::queries, {dst, rank_}, {q, rows_.own});
  ops::fit_heads(context.stream, {.dst = dst,
                                  .src = q,
                                  .head_count = rows_.heads,
                                  .dst_first = rank_,
                                  .src_first = rows_.own});
}

void LatentHeads::values(const BlockContext& context, const BlockWeights& weights,
                         const Projection& up, const TensorView& dst, const TensorView& src) const {
  ops::head_linear(context.stream,
                   {.dst = dst, .src = src, .weights = value_views(weights, context.compute)});
  add_head_adapters(context, up, &HeadLowRank::values, {dst, rows_.value}, {src, rank_});
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
        ops::LowRankWeight{.a = a, .parts = {{.b = b, .scale = scale}}}));
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

Status HeadLowRank::pack(Stream& stream, const HeadRows& rows, const TensorView& a,
                         const TensorView& b, DeviceCopies& copies) const {
  const auto pack_copy = [&](const ops::PackedWeight& packed, const TensorView& matrix) -> Status {
    JIGE_TRY(const TensorView there, copies.of(matrix, matrix.dtype));
    ops::pack_weight(stream, packed, there);
    return {};
  };
  const Turned a_turned(a);
  JIGE_DO(pack_copy(values.front()->a, a));
  JIGE_DO(pack_copy(queries.front()->parts.front().b, a_turned.view));
  for (int64_t head = 0; head < rows.heads; ++head) {
    const auto i = static_cast<size_t>(head);
    const int64_t row = head * (rows.own + rows.value);
    const Turned key(rows_at(b, row, rows.own));
    JIGE_DO(pack_copy(queries[i]->a, key.view));
    JIGE_DO(pack_copy(values[i]->parts.front().b, rows_at(b, row + rows.own, rows.value)));
    copies.clear();
  }
  return {};
}

}  // namespace jige::model
