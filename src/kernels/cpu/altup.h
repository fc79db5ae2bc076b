// Alternating updates of N residual streams on rows (Baykal et al., 2023), forward and backward.
//
// Shapes: T tokens, D width, N streams of D columns each, stream 0 the one that a layer computes
// with; all f32.
//   predict  p_i = x_i + Σ_j m[i, j] x_j,           m [N, N] of the token; j in ascending order
//   correct  q_i = p_i + (1 + g[i]) (y - p_0),      y what the layer made of p_0, g [N] of the
//   token
// Backward works in the memory of the gradients: those of p become those of x, those of q those of
// p. Sums over columns are those of simd.h.
// Bytes moved: every operand once. Threads: pure functions on row ranges.
#pragma once

#include <cstdint>

#include "kernels/cpu/types.h"

namespace jige::cpu {

inline constexpr int64_t kAltUpStreamsMax = 4;

struct AltUpPredictArgs {
  Rows active;    // [T, D]: p_0
  Rows others;    // [T, (N-1) D]: p_1 …
  ConstRows src;  // [T, N D]: x
  ConstRows map;  // [T, N²]: m
  int64_t streams;
  int64_t width;
};

struct AltUpPredictBackwardArgs {
  Rows grad;      // [T, N D]: of p; becomes that of x
  Rows grad_map;  // [T, N²]
  ConstRows src;  // x
  ConstRows map;
  int64_t streams;
  int64_t width;
};

struct AltUpCorrectArgs {
  Rows dst;          // [T, N D]: q; has p_1 … in its columns from D on
  ConstRows active;  // p_0
  ConstRows result;  // y
  ConstRows gains;   // [T, N]: g
  int64_t streams;
  int64_t width;
};

struct AltUpCorrectBackwardArgs {
  Rows grad;         // [T, N D]: of q; becomes that of p, as far as p does not make y
  Rows grad_result;  // [T, D]
  Rows grad_gains;   // [T, N]
  ConstRows active;
  ConstRows result;
  ConstRows gains;
  int64_t streams;
  int64_t width;
};

// dst = src times a vector of columns.
struct ScaleColumnsArgs {
  Rows dst;       // [T, D], f32 or bf16; may be src
  ConstRows src;  // likewise
  const float* factors;
  int64_t width;
};

struct AltUpKernels {
  void (*predict)(const AltUpPredictArgs&, int64_t row_begin, int64_t row_end) noexcept;
  void (*predict_backward)(const AltUpPredictBackwardArgs&, int64_t row_begin,
                           int64_t row_end) noexcept;
  void (*correct)(const AltUpCorrectArgs&, int64_t row_begin, int64_t row_end) noexcept;
  void (*correct_backward)(const AltUpCorrectBackwardArgs&, int64_t row_begin,
                           int64_t row_end) noexcept;
  void (*scale_columns)(const ScaleColumnsArgs&, int64_t row_begin, int64_t row_end) noexcept;
};

const AltUpKernels& altup_kernels(Isa isa);

}  // namespace jige::cpu
