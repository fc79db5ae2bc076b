// Blocks take parts of a row; the last one of a row to be done takes the largest of theirs.
#include "kernels/cuda/likeliest.h"

#include <climits>
#include <cmath>

#include "kernels/cuda/vectors.cuh"

namespace jige::cuda {
namespace {

constexpr int kLikeliestThreads = 256;
constexpr int kVectors = 2;  // of a thread
constexpr int kLikeliestPart = kLikeliestThreads * kVectors * kVector;

struct Best {
  float value;
  int32_t index;  // -1: there is NaN
};

__device__ inline Best nothing() { return {-INFINITY, INT_MAX}; }
__device__ inline Best better(const Best& a, const Best& b) {
  if (a.index < 0 || b.index < 0) return {a.value, -1};
  return a.value > b.value || (a.value == b.value && a.index < b.index) ? a : b;
}
__device__ inline Best of_warp(Best best) {
  for (int lanes = kWarp / 2; lanes > 0; lanes /= 2) {
    best = better(best, {__shfl_xor_sync(kAllLanes, best.value, lanes),
                         __shfl_xor_sync(kAllLanes, best.index, lanes)});
  }
  return best;
}

// Blocks (part, row).
template <int W>
__global__ void __launch_bounds__(kLikeliestThreads) likeliest_kernel(Likeliest a) {
  begin_kernel();
  __shared__ Best of_warps[kLikeliestThreads / kWarp];
  const int64_t row = blockIdx.y;
  const ConstRows logits = {a.logits, ElementType::kF32, a.stride};
  constexpr int kSteps = kLikeliestPart / kLikeliestThreads / W;
  Packed<W> packed[kSteps];
  const auto column_of = [](int step) {
    return int64_t{blockIdx.x} * kLikeliestPart +
           (step * kLikeliestThreads + static_cast<int>(threadIdx.x)) * W;
  };
#pragma unroll
  for (int step = 0; step < kSteps; ++step) {
    if (column_of(step) + W > a.columns) continue;
    packed[step] = load_packed<W>(logits, row, column_of(step));
  }
  Best best = nothing();
#pragma unroll
  for (int step = 0; step < kSteps; ++step) {
    if (column_of(step) + W > a.columns) continue;
    float x[W];
    packed[step].unpack(ElementType::kF32, x);
    for (int i = 0; i < W; ++i) {
      const auto index = static_cast<int32_t>(column_of(step)) + i;
      best = better(best, {x[i], x[i] == x[i] ? index : -1});
    }
  }
  best = of_warp(best);
  if (lane_id() == 0) of_warps[warp_id()] = best;
  __syncthreads();
  auto* parts = static_cast<Best*>(a.scratch) + row * gridDim.x;
  if (warp_id() == 0) {
    best = of_warp(lane_id() < kLikeliestThreads / kWarp ? of_warps[lane_id()] : nothing());
    if (lane_id() == 0) parts[blockIdx.x] = best;
  }
  if (!is_last_block(a.counters + row, static_cast<int>(gridDim.x)) || warp_id() != 0) return;
  best = nothing();
  for (int i = lane_id(); i < static_cast<int>(gridDim.x); i += kWarp) {
    best = better(best, {__ldcg(&parts[i].value), __ldcg(&parts[i].index)});
  }
  best = of_warp(best);
  const bool any = best.index >= 0 && fabsf(best.value) < INFINITY;
  if (lane_id() == 0) a.tokens[row] = any ? best.index : -1;
}

unsigned likeliest_parts(int64_t columns) { return blocks_for(columns, kLikeliestPart); }

}  // namespace

int64_t likeliest_bytes(int64_t rows, int64_t columns) {
  return rows * likeliest_parts(columns) * int64_t{sizeof(Best)};
}

void likeliest(const LaunchStream& stream, const Likeliest& args) {
  const ConstRows logits = {args.logits, ElementType::kF32, args.stride};
  const bool vectors = args.columns % kVector == 0 && aligned(args.rows, logits);
  launch(stream,
         {{likeliest_parts(args.columns), static_cast<unsigned>(args.rows)}, kLikeliestThreads},
         vectors ? likeliest_kernel<kVector> : likeliest_kernel<1>, args);
}

}  // namespace jige::cuda
