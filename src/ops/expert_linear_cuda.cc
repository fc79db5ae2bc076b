#include "ops/expert_linear_cuda.h"

#include <algorithm>

#include "kernels/cuda/groups.h"
#include "ops/kernel_rows.h"
#include "ops/linear_cuda.h"

namespace jige::ops {
namespace {

int64_t weight_stride(const ExpertWeights& weights) {
  return weights.stride_bytes / dtype_bytes(weights.first.compute, 1);
}

void multiply_few(Stream& stream, const ExpertProduct& args) {
  const PackedWeight& weight = args.weights.first;
  cuda::multiply_few_rows(launch_stream(stream),
                          {.rows = args.token_count,
                           .n = weight.n,
                           .k = weight.k,
                           .src = const_rows_of(args.src),
                           .weight = static_cast<const cpu::Bf16*>(cuda_packed_rows(weight).data),
                           .out = rows_of(args.dst),
                           .groups = {.count = args.weights.count,
                                      .row_ends = args.row_ends.as<int32_t>(),
                                      .all_rows = args.src.rows(),
                                      .weight_stride = weight_stride(args.weights)}});
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
  if (forward && bf16 && args.token_count <= cuda::kFewRows) return multiply_few(stream, args);
  multiply(stream,
           {.product = {.rows = args.src.rows(),
                        .columns = args.dst.columns(),
                        .depth = args.src.columns(),
                        .left = const_rows_of(args.src),
                        .right = const_rows_of(cuda_packed_rows(weight)),
                        .out = rows_of(args.dst),
                        .right_across = !forward},
            .row_ends = args.row_ends.as<int32_t>(),
            .groups = args.weights.count,
            .right_stride = weight_stride(args.weights)},
           bf16);
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
