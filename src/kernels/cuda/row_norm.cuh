// RMSNorm of one row by a block of threads, in an order that its width alone decides: as a kernel
// for few rows, and within a product that reads them (linear_few_rows.cu). Threads: device code.
#pragma once

#include "kernels/cuda/vectors.cuh"

namespace jige::cuda {

constexpr int kRowNormThreads = 256;
constexpr int kRowNormVectors = 4;                                            // of a thread
constexpr int kRowNormColumns = kRowNormThreads * kRowNormVectors * kVector;  // at most

struct RowNorm {
  const float* weight;  // or null
  float eps;
  bool adds_one;  // to the weight
  int width;
};

// What normalised columns are multiplied with.
template <int W>
__device__ void load_factors(const float* weight, bool adds_one, int64_t column, float (&x)[W]) {
  if (!weight) {
    for (int i = 0; i < W; ++i) x[i] = 1.0f;
    return;
  }
  load_vector<W>(weight, column, x);
  if (!adds_one) return;
  for (int i = 0; i < W; ++i) x[i] += 1.0f;
}

// put(column, x) for the vectors of this thread. All threads of the block call it; `shared` is as
// in block_sum. REQUIRES: row and weight are aligned to 16 bytes, width is a multiple of kVector.
template <typename Put>
__device__ void norm_row(const RowNorm& norm, const float* row, float* shared, Put put) {
  float x[kRowNormVectors][kVector];
  const auto column_of = [](int j) {
    return (j * kRowNormThreads + static_cast<int>(threadIdx.x)) * kVector;
  };
  float squares = 0.0f;
#pragma unroll
  for (int j = 0; j < kRowNormVectors; ++j) {
    if (column_of(j) >= norm.width) continue;
    load_vector<kVector>(row, column_of(j), x[j]);
    for (int i = 0; i < kVector; ++i) squares = fmaf(x[j][i], x[j][i], squares);
  }
  const float variance = block_sum(squares, shared) / static_cast<float>(norm.width);
  const float rstd = 1.0f / sqrtf(variance + norm.eps);
#pragma unroll
  for (int j = 0; j < kRowNormVectors; ++j) {
    if (column_of(j) >= norm.width) continue;
    float factors[kVector];
    load_factors<kVector>(norm.weight, norm.adds_one, column_of(j), factors);
    for (int i = 0; i < kVector; ++i) x[j][i] = x[j][i] * rstd * factors[i];
    put(column_of(j), x[j]);
  }
}

}  // namespace jige::cuda
