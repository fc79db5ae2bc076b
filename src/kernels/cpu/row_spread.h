// What depends on the mean and the spread of a row, forward and backward.
//
//   match  y = x a / b,  a² = mean(t²),  b² = max(mean(x²), floor): as large as the row t
//   cut    y = max(x - c, 0),  c = m + k s,  m the mean of the row and s² that of (x - m)²
// Gradients, D columns, S the sum over a row:
//   match  dx = (a/b) (dy - [mean(x²) > floor] x S(dy x) / (D b²)),  dt += t S(dy x) / (D a b)
//   cut    dx = dy [x > c] - (1 + k (x - m) / s) S(dy [x > c]) / D
// A row t of zeros gets no gradient, and of a row without spread the mean alone counts. Sums are
// those of simd.h. Operands are f32 or bf16 each.
// Bytes moved: every operand once, from a cache twice. Threads: pure functions on row ranges.
#pragma once

#include <cstdint>

#include "kernels/cpu/types.h"

namespace jige::cpu {

struct RowMatchArgs {
  Rows dst;  // may be src
  ConstRows src;
  ConstRows target;
  int64_t width;
  float floor;
};

struct RowMatchBackwardArgs {
  Rows grad_src;     // may be grad_dst
  Rows grad_target;  // added to
  ConstRows grad_dst;
  ConstRows src;
  ConstRows target;
  int64_t width;
  float floor;
};

struct RowCutArgs {
  Rows dst;  // may be src
  ConstRows src;
  int64_t width;
  float deviations;  // k
};

struct RowCutBackwardArgs {
  Rows grad_src;  // may be grad_dst
  ConstRows grad_dst;
  ConstRows src;
  int64_t width;
  float deviations;
};

struct RowSpreadKernels {
  void (*match)(const RowMatchArgs&, int64_t row_begin, int64_t row_end) noexcept;
  void (*match_backward)(const RowMatchBackwardArgs&, int64_t row_begin, int64_t row_end) noexcept;
  void (*cut)(const RowCutArgs&, int64_t row_begin, int64_t row_end) noexcept;
  void (*cut_backward)(const RowCutBackwardArgs&, int64_t row_begin, int64_t row_end) noexcept;
};

const RowSpreadKernels& row_spread_kernels(Isa isa);

}  // namespace jige::cpu
