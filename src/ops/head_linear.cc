#include "ops/head_linear.h"

#include <cstddef>
#include <utility>

#include "base/check.h"
#include "ops/linear_cuda.h"
#include "tensor/cuda_device.h"

namespace jige::ops {
namespace {

TensorView columns_of_head(const TensorView& rows, int64_t heads, int64_t head, int64_t columns) {
  const int64_t begin = head * (rows.columns() / heads);
  return rows.column_range(begin, begin + columns);
}

// Those of a GPU for the input gradient, which are turned, as forward ones.
PackedWeight turned(PackedWeight weight) {
  if (weight.use == PackUse::kForward) return weight;
  weight.use = PackUse::kForward;
  std::swap(weight.n, weight.k);
  return weight;
}

}  // namespace

PackedWeight HeadWeights::of(int64_t head) const {
  PackedWeight weight = first;
  weight.data = static_cast<std::byte*>(first.data) + head * step_bytes;
  return weight;
}

void pack_head_weight(Stream& stream, const HeadWeights& weights, int64_t head,
                      const TensorView& weight) {
  const PackedWeight packed = weights.of(head);
  JIGE_CHECK(weight.rows() == packed.n && weight.columns() == packed.k, "{} for [{}, {}]",
             weight.shape.to_string(), packed.n, packed.k);
  if (on_cuda(stream) && packed.use == PackUse::kInputGradient) {
    return cuda_pack_turned(stream, turned(packed), weight);
  }
  pack_weight(stream, packed, weight);
}

void head_linear(Stream& stream, const HeadLinear& args) {
  HeadWeights weights = args.weights;
  if (on_cuda(stream)) weights.first = turned(weights.first);
  const bool forward = weights.first.use == PackUse::kForward;
  const int64_t outputs = forward ? weights.first.n : weights.first.k;
  const int64_t inputs = forward ? weights.first.k : weights.first.n;
  const int64_t heads = weights.count;
  JIGE_CHECK(heads >= 1 && args.dst.columns() % heads == 0 && args.src.columns() % heads == 0 &&
                 outputs <= args.dst.columns() / heads && inputs <= args.src.columns() / heads,
             "{} outputs in {} columns and {} inputs in {} of {} heads", outputs,
             args.dst.columns(), inputs, args.src.columns(), heads);
  JIGE_CHECK(args.dst.rows() == args.src.rows() && weights.first.format == WeightFormat::kCompute,
             "{} rows in, {} out, weights in {}", args.src.rows(), args.dst.rows(),
             weight_format_name(weights.first.format));
  if (on_cuda(stream) && cuda_head_linear(stream, {args.dst, args.src, weights})) return;
  for (int64_t head = 0; head < heads; ++head) {
    const TensorView dst = columns_of_head(args.dst, heads, head, outputs);
    const TensorView src = columns_of_head(args.src, heads, head, inputs);
    if (forward) {
      linear_forward(stream, {.dst = dst, .src = src, .weight = weights.of(head)});
    } else {
      linear_backward_input(stream, {.grad_src = dst, .grad_dst = src, .weight = weights.of(head)});
    }
  }
}

}  // namespace jige::ops
