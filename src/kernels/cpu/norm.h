// RMSNorm and LayerNorm on rows, forward, input gradient and weight gradient. With weight_adds_one
// w below is 1 + weight, without weight 1.
//
// Shapes: T rows of G groups of D columns; statistics [T, G]. Formulas are in ops/norm.h.
//   input gradient   x̂ = (x - m) r, g = dy · w:  dx = r (g - mean(g) - x̂ mean(g x̂));
//                    rms has m = 0 and no mean(g)
//   weight gradient  dw += Σ dy · x̂, db += Σ dy over rows, then groups, in ascending order
// Sums within a row follow the rule in simd.h. Bytes moved: forward 2 T·G·D elements when a row
// stays in the first-level cache, input gradient 3, weight gradient 2.
// Threads: pure functions on row ranges (column ranges for the weight gradient).
#pragma once

#include <cstdint>

#include "kernels/cpu/types.h"

namespace jige::cpu {

// Statistics of rows, [T, G]; `data` may be null where the field is optional.
struct Statistics {
  float* data;
  int64_t stride;
};

struct NormForwardArgs {
  Rows dst;
  ConstRows src;
  const float* weight;  // or null
  const float* bias;    // layer only, or null
  Statistics rstd;      // or null
  Statistics mean;      // layer only, or null
  int64_t group_count;
  int64_t width;
  float eps;
  bool weight_adds_one;
};

struct NormBackwardInputArgs {
  Rows grad_src;
  ConstRows grad_dst;
  ConstRows src;
  const float* weight;  // or null
  Statistics rstd;
  Statistics mean;  // layer only
  int64_t group_count;
  int64_t width;
  bool accumulate;
  bool weight_adds_one;
};

struct NormBackwardWeightArgs {
  float* grad_weight;
  float* grad_bias;  // layer only, or null
  ConstRows grad_dst;
  ConstRows src;
  Statistics rstd;
  Statistics mean;  // layer only
  int64_t row_count;
  int64_t group_count;
  int64_t width;
};

struct NormKernels {
  void (*rms_forward)(const NormForwardArgs&, int64_t row_begin, int64_t row_end) noexcept;
  void (*layer_forward)(const NormForwardArgs&, int64_t row_begin, int64_t row_end) noexcept;
  void (*rms_backward_input)(const NormBackwardInputArgs&, int64_t row_begin,
                             int64_t row_end) noexcept;
  void (*layer_backward_input)(const NormBackwardInputArgs&, int64_t row_begin,
                               int64_t row_end) noexcept;
  void (*rms_backward_weight)(const NormBackwardWeightArgs&, int64_t column_begin,
                              int64_t column_end) noexcept;
  void (*layer_backward_weight)(const NormBackwardWeightArgs&, int64_t column_begin,
                                int64_t column_end) noexcept;
};

const NormKernels& norm_kernels(Isa isa);

}  // namespace jige::cpu
