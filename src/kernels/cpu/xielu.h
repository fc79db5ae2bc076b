// xIELU (Huang and Schlag, 2024) on rows, forward and backward: an activation without a gate whose
// two curvatures are learned.
//
//   p = softplus(alpha_p), n = beta + softplus(alpha_n), m = min(x, eps)
//   above 0   h = p x² + beta x:             dx = dh (2 p x + beta)
//   else      h = n (e^m - 1 - x) + beta x:  dx = dh (n (e^m - 1) + beta) up to eps, behind it
//             dh (beta - n)
//   slopes    of a row, those of alpha_p and alpha_n: σ(alpha) times the sums over columns of
//             dh x² and of dh (e^m - 1 - x); softplus has the slope 1 above 20
// e^m - 1 - m is a polynomial near 0, where it would cancel. Sums over columns are those of simd.h.
// Bytes moved: every operand once. Threads: pure functions on row ranges.
#pragma once

#include <cstdint>

#include "kernels/cpu/types.h"

namespace jige::cpu {

struct XieluCurve {
  const float* alpha_p;
  const float* alpha_n;
  const float* beta;
  const float* eps;
};

struct XieluForwardArgs {
  XieluCurve curve;
  Rows dst;
  ConstRows src;  // may be dst
  int64_t width;
};

struct XieluBackwardArgs {
  XieluCurve curve;
  Rows grad_src;  // may be src or grad_dst
  ConstRows grad_dst;
  ConstRows src;
  Rows slopes;  // [T, 2] f32
  int64_t width;
};

struct XieluKernels {
  void (*forward)(const XieluForwardArgs&, int64_t row_begin, int64_t row_end) noexcept;
  void (*backward)(const XieluBackwardArgs&, int64_t row_begin, int64_t row_end) noexcept;
};

const XieluKernels& xielu_kernels(Isa isa);

}  // namespace jige::cpu
