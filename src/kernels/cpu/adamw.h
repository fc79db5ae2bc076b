// One AdamW step on arrays, and sums of squares.
//
// All in f32, element by element, in this order, so that every instruction set gives the same bits:
//   g = grad · grad_scale
//   m = fma(one_minus_beta1, g, beta1 · m)
//   v = fma(one_minus_beta2 · g, g, beta2 · v)
//   w = w · decay - step_size · (m / fma(sqrt(v), root_correction, epsilon)), the last two as one
//   fma
// Moves 28 bytes an element and is bound by memory. Threads: pure functions.
#pragma once

#include <cstdint>

#include "kernels/cpu/types.h"

namespace jige::cpu {

struct AdamWArrays {
  float* weight;
  float* moment1;
  float* moment2;
  const float* grad;
};

struct AdamWFactors {
  float grad_scale;
  float beta1;
  float one_minus_beta1;
  float beta2;
  float one_minus_beta2;
  float root_correction;  // 1 / sqrt(1 - beta2^t)
  float epsilon;
  float decay;      // 1 - learning rate · weight decay
  float step_size;  // learning rate / (1 - beta1^t)
};

// Elements whose squares are summed together before anything else is added.
inline constexpr int64_t kSquareBlock = 4096;

struct AdamWKernels {
  void (*step)(const AdamWArrays& arrays, const AdamWFactors& factors, int64_t begin,
               int64_t end) noexcept;
  // Σ x² in double over count <= kSquareBlock elements: lane j of sixteen takes the elements j,
  // j + 16, … in ascending order, then lanes j and j + 8, j + 4, j + 2, j + 1 are added.
  double (*sum_of_squares)(const float* values, int64_t count) noexcept;
};

const AdamWKernels& adamw_kernels(Isa isa);

}  // namespace jige::cpu
