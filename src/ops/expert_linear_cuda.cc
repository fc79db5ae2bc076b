#include "ops/expert_linear_cuda.h"

#include <algorithm>

#include "kernels/cuda/groups.h"
#include "kernels/cuda/quant.h"
#include "ops/kernel_rows.h"
#include "ops/linear_cuda.h"

namespace jige::ops {
namespace {

int64_t weight_stride(const ExpertWeights& weights) {
  return weights.stride_bytes / dtype_bytes(weights.first.compute, 1);
}
cuda::QuantWeight quant_weights(const ExpertWeights& weights) {
  cuda::QuantWeight first = cuda_quant_weight(weights.first);
  first.step_bytes = weights.stride_bytes;
  return first;
}

// The groups of rows, of so many tokens; weights of few bits are given beside it.
cuda::FewRowsProduct grouped_few_rows(const ExpertWeights& weights, const TensorView& src,
                                      const TensorView& dst, int64_t token_count,
                                      const TensorView& row_ends) {
  cuda::FewRowsProduct product = {
      .rows = token_count,
      .n = dst.columns(),
      .k = weights.first.k,
      .src = const_rows_of(src),
      .out = rows_of(dst),
      .groups = {
          .count = weights.count, .row_ends = row_ends.as<int32_t>(), .all_rows = dst.rows()}};
  if (cuda_is_quantised(weights.first)) return product;
  product.weight = static_cast<const cpu::Bf16*>(cuda_packed_rows(weights.first).data);
  product.groups.weight_stride = weight_stride(weights);
  return product;
}

void multiply_few_grouped(Stream& stream, const ExpertProduct& args) {
  cuda::FewRowsProduct product =
      grouped_few_rows(args.weights, args.src, args.dst, args.token_count, args.row_ends);
  if (!cuda_is_quantised(args.weights.first)) {
    cuda::multiply_few_rows(launch_stream(stream), product);
    return;
  }
  if (!cuda::quant_few_rows_takes(product)) {
    product.src = const_rows_of(cuda_padded_copy(stream, args.src));
  }
  cuda::multiply_few_rows(launch_stream(stream), product, quant_weights(args.weights));
}

void multiply_grouped_blocks(Stream& stream, const cuda::GroupedProduct& grouped,
                             const ExpertWeights& weights) {
  const cuda::QuantWeight first = quant_weights(weights);
  if (weights.first.compute == DType::kBF16 && cuda::quant_groups_take_tensor_cores(grouped)) {
    cuda::multiply_groups(launch_stream(stream), grouped, first);
  } else {
    cuda::multiply_groups_in_chains(launch_stream(stream), grouped, first,
                                    element_type(weights.first.compute));
  }
}

void multiply(Stream& stream, const cuda::GroupedProduct& grouped, bool on_tensor_cores) {
  if (on_tensor_cores && cuda::groups_take_tensor_cores(grouped)) {
    cuda::multiply_groups(launch_stream(stream), grouped);
  } else {
    cuda::multiply_groups_in_chains(launch_stream(stream), grouped);
  }
}

}  // namespace

void cuda_expert_product(Stream& stream, const ExpertProduct& args) {
  const PackedWeight& weight = args.weights.first;
  const bool forward = args.use == PackUse::kForward;
  JIGE_CHECK(args.src.dtype == weight.compute, "rows of experts in {}",
             dtype_info(args.src.dtype).name);
  if (args.src.count() == 0) return;
  const bool bf16 = weight.compute == DType::kBF16;
  if (forward && bf16 && args.token_count <= cuda::kFewRows)
    return multiply_few_grouped(stream, args);
  cuda::GroupedProduct grouped = {.product = {.rows = args.src.rows(),
                                              .columns = args.dst.columns(),
                                              .depth = args.src.columns(),
                                              .left = const_rows_of(args.src),
                                              .out = rows_of(args.dst),
                                              .right_across = !forward},
                                  .row_ends = args.row_ends.as<int32_t>(),
                                  .groups = args.weights.count};
  if (cuda_is_quantised(weight)) return multiply_grouped_blocks(stream, grouped, args.weights);
  grouped.product.right = const_rows_of(cuda_packed_rows(weight));
  grouped.right_stride = weight_stride(args.weights);
  multiply(stream, grouped, bf16);
}

bool cuda_expert_gated_forward(Stream& stream, const ExpertGated& args) {
  const PackedWeight& weight = args.weights.first;
  const Routing& routing = args.routing;
  const int64_t tokens = routing.token_count();
  if (weight.compute != DType::kBF16 || tokens > cuda::kFewRows) return false;
  cuda::FewRowsProduct product =
      grouped_few_rows(args.weights, args.src, args.dst, tokens, routing.row_ends);
  product.groups.rows_of = routing.place_of_row.as<int32_t>();
  product.groups.rows_by = routing.chosen_count();
  product.gate =
      args.unit == GatedUnit::kSwiGlu ? cuda::ProductGate::kSilu : cuda::ProductGate::kGelu;
  if (args.bounded.biases) {
    product.gate = cuda::ProductGate::kBounded;
    product.bounds = {args.bounded.alpha, args.bounded.limit};
    product.bias = args.bounded.biases.as<float>();
    product.groups.bias_stride = weight.n;
  }
  if (!cuda_is_quantised(weight)) {
    if (!cuda::few_rows_takes_gate(product)) return false;
    cuda::multiply_few_rows(launch_stream(stream), product);
    return true;
  }
  if (!cuda::quant_few_rows_takes(product) || product.n % cuda::kQuantRecordRows != 0) return false;
  cuda::multiply_few_rows(launch_stream(stream), product, quant_weights(args.weights));
  return true;
}

void cuda_expert_weight_gradient(Stream& stream, const ExpertWeightGradient& args) {
  JIGE_CHECK(args.grad_dst.dtype == args.compute && args.src.dtype == args.compute,
             "rows of experts in {} and {}", dtype_info(args.grad_dst.dtype).name,
             dtype_info(args.src.dtype).name);
  std::vector<float*> outs;
  for (const TensorView& grad : args.grads) outs.push_back(static_cast<float*>(grad.data));
  const auto wanted = [](const float* out) { return out != nullptr; };
  if (std::ranges::none_of(outs, wanted)) return;
  constexpr uintptr_t kPairBytes = 8;
  const auto aligned = [](const float* out) {
    return reinterpret_cast<uintptr_t>(out) % kPairBytes == 0;
  };
  const auto bytes = static_cast<int64_t>(outs.size() * sizeof(float*));
  multiply(stream,
           {.product = {.rows = args.grad_dst.columns(),
                        .columns = args.src.columns(),
                        .left = const_rows_of(args.grad_dst),
                        .right = const_rows_of(args.src),
                        .out = {nullptr, cpu::ElementType::kF32, args.src.columns()},
                        .left_across = true,
                        .right_across = true,
                        .accumulate = args.accumulate},
            .row_ends = args.row_ends.as<int32_t>(),
            .groups = std::ssize(args.grads),
            .outs = static_cast<float* const*>(as_cuda(stream).upload(outs.data(), bytes))},
           args.compute == DType::kBF16 && std::ranges::all_of(outs, aligned));
}

}  // namespace jige::ops
