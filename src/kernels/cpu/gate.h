// Products with a gate that has a tensor of its own: see ops/gate.h.
//
// Bytes moved: every operand once. Threads: pure functions on row ranges.
#pragma once

#include <cstdint>

#include "kernels/cpu/types.h"

namespace jige::cpu {

struct GateForwardArgs {
  Rows dst;       // [T, C], may be src
  ConstRows src;  // [T, C]
  ConstRows gate;
  int64_t width;  // C
};

struct GateBackwardArgs {
  Rows grad_src;  // [T, C], may be grad_dst
  Rows grad_gate;
  ConstRows grad_dst;
  ConstRows src;
  ConstRows gate;
  int64_t width;
};

// A gate by what it makes of its own numbers.
struct GateKernel {
  void (*forward)(const GateForwardArgs&, int64_t row_begin, int64_t row_end) noexcept;
  void (*backward)(const GateBackwardArgs&, int64_t row_begin, int64_t row_end) noexcept;
};

struct GateKernels {
  GateKernel sigmoid, silu, plain;
};

const GateKernels& gate_kernels(Isa isa);

}  // namespace jige::cpu
