// exp, sigmoid and sums of rows with the bits of the CPU's (kernels/cpu/simd_math.h and simd.h):
// where a choice hangs on them. Threads: device code; row_sum() by whole warps.
#pragma once

#include "kernels/cuda/portable.cuh"

namespace jige::cuda {

constexpr float kRoundShift = 12582912.0f;  // 1.5 · 2^23: adding it rounds to whole numbers
constexpr float kPerLn2 = 1.44269504088896f;

// e^(x - n ln 2) for the whole number n next to x / ln 2.
__device__ inline float exp_remainder(float x, float n) {
  const float r = fmaf(n, -1.42860682031e-6f, fmaf(n, -0x1.62e4p-1f, x));
  float sum = 0.00138367142063f;
  sum = fmaf(sum, r, 0.00836914032698f);
  sum = fmaf(sum, r, 0.0416681058705f);
  sum = fmaf(sum, r, 0.166665166616f);
  sum = fmaf(sum, r, 0.499999940395f);
  sum = fmaf(sum, r, 1.0f);
  return fmaf(sum, r, 1.0f);
}

__device__ inline float exact_exp(float x) {
  const float raised = -104.5f > x ? -104.5f : x;
  const float bounded = 89.5f < raised ? 89.5f : raised;
  const float shifted = fmaf(bounded, kPerLn2, kRoundShift);
  const float power = exp_remainder(bounded, shifted - kRoundShift);
  const auto n = static_cast<int>(float_to_bits(shifted) - float_to_bits(kRoundShift));
  const int half = n >> 1;
  const auto two_to_the = [](int e) { return bits_to_float(static_cast<uint32_t>(e + 127) << 23); };
  return power * two_to_the(half) * two_to_the(n - half);
}

// 1 / (1 + e^-x).
__device__ inline float exact_sigmoid(float x) {
  constexpr float kBias = kRoundShift + 127.0f;
  const float raised = -86.6f > -x ? -86.6f : -x;
  const float bounded = 88.7f < raised ? 88.7f : raised;
  const float shifted = fmaf(bounded, kPerLn2, kBias);
  const float power = bits_to_float(float_to_bits(shifted) << 23);
  return 1.0f / (1.0f + exp_remainder(bounded, shifted - kBias) * power);
}

// Σ at(i) for i in [0, count), in the order of sums over rows on the CPU; every lane gets it.
template <typename At>
__device__ inline float row_sum(int count, At at) {
  constexpr int kLanes = 16;  // the other half of the warp does the same
  float sum = 0.0f;
  for (int i = lane_id() % kLanes; i < count; i += kLanes) sum = sum + at(i);
  for (int lanes = kLanes / 2; lanes > 0; lanes /= 2) {
    sum = sum + __shfl_xor_sync(kAllLanes, sum, lanes);
  }
  return sum;
}

}  // namespace jige::cuda
