// The softmax of attention forward on tensor cores, as tiles of keys come. Accumulators are those
// of attention_flash.cuh. Threads: device code.
#pragma once

#include <cmath>

#include "kernels/cuda/attention_flash.cuh"

namespace jige::cuda {

// A warp's rows 16 m + 8 half + g.
template <int kM>
struct RowState {
  float most[kM][2];  // of scores
  float sum[kM][2];   // of this lane's weights

  __device__ void clear() {
#pragma unroll
    for (int m = 0; m < kM; ++m) {
      most[m][0] = most[m][1] = -INFINITY;
      sum[m][0] = sum[m][1] = 0.0f;
    }
  }
};

template <int kM, int kN>
__device__ inline void bend(float (&scores)[kM][kN][4], float factor) {
#pragma unroll
  for (int m = 0; m < kM; ++m) {
#pragma unroll
    for (int n = 0; n < kN; ++n) {
#pragma unroll
      for (int e = 0; e < 4; ++e) scores[m][n][e] = bounded_tanh(scores[m][n][e] * factor);
    }
  }
}

// Scores become weights; sums of before are scaled to the new maximum.
template <int kM, int kN, int kColumns>
__device__ inline void soften(float (&scores)[kM][kN][4], RowState<kM>& state,
                              float (&sums)[kM][kColumns][4], float factor) {
#pragma unroll
  for (int m = 0; m < kM; ++m) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float most = state.most[m][half];
#pragma unroll
      for (int n = 0; n < kN; ++n) {
        most = fmaxf(most, fmaxf(scores[m][n][2 * half], scores[m][n][2 * half + 1]));
      }
      most = fmaxf(most, __shfl_xor_sync(kAllLanes, most, 1));
      most = fmaxf(most, __shfl_xor_sync(kAllLanes, most, 2));
      const float known = most == -INFINITY ? 0.0f : most;
      const float base = known * factor;
      // One where the maximum stays: tiles that a row does not see leave no trace.
      const float shrink = fast_exp2((state.most[m][half] - known) * factor);
      state.most[m][half] = most;
      float sum = 0.0f;
#pragma unroll
      for (int n = 0; n < kN; ++n) {
#pragma unroll
        for (int e = 2 * half; e < 2 * half + 2; ++e) {
          const float weight = fast_exp2(fmaf(scores[m][n][e], factor, -base));
          scores[m][n][e] = weight;
          sum += weight;
        }
      }
      state.sum[m][half] = fmaf(state.sum[m][half], shrink, sum);
#pragma unroll
      for (int n = 0; n < kColumns; ++n) {
        sums[m][n][2 * half] *= shrink;
        sums[m][n][2 * half + 1] *= shrink;
      }
    }
  }
}

}  // namespace jige::cuda
