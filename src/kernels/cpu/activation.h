// SwiGLU, GeGLU and activations without a gate on rows, forward and backward.
//
//   swiglu   h = g σ(g) u:  dg = dh u σ(g) (1 + g (1 - σ(g))),  du = dh g σ(g)
//   geglu    h = gelu(g) u in the tanh or the erf form:  dg = dh u gelu'(g),  du = dh gelu(g)
//   gelu     tanh form, as x σ(2a) with a = √(2/π) (x + 0.044715 x³), since (1 + tanh a) / 2 =
//   σ(2a):
//              dx = dh (s + x s (1 - s) 2a'),  s = σ(2a)
//            erf form, x Φ(x) with Φ(x) = (1 + erf(x/√2)) / 2:
//              dx = dh (Φ(x) + x φ(x)),  φ(x) = exp(-x²/2) / √(2π)
//   relu     max(x, 0), NaN where x is:  dx = dh where not x <= 0, else 0
//   relu²    relu(x)²:  dx = 2 dh relu(x)
//   silu     x σ(x):  dx = dh σ(x) (1 + x (1 - σ(x)))
// Bytes moved: every operand once. Threads: pure functions on row ranges.
#pragma once

#include <cstdint>

#include "kernels/cpu/types.h"

namespace jige::cpu {

struct GatedForwardArgs {
  Rows dst;           // [T, F]
  ConstRows gate_up;  // [T, 2F]
  int64_t width;      // F
};

struct GatedBackwardArgs {
  Rows grad_gate_up;   // [T, 2F], may be gate_up
  ConstRows grad_dst;  // [T, F]
  ConstRows gate_up;   // [T, 2F]
  Rows activated;      // [T, F] h again, of gate_up's type, may be its gate columns; or null data
  int64_t width;       // F
};

struct PlainForwardArgs {
  Rows dst;
  ConstRows src;  // may be dst
  int64_t width;
};

struct PlainBackwardArgs {
  Rows grad_src;  // may be src or grad_dst
  ConstRows grad_dst;
  ConstRows src;
  int64_t width;
};

// An activation without a gate.
struct PlainActivation {
  void (*forward)(const PlainForwardArgs&, int64_t row_begin, int64_t row_end) noexcept;
  void (*backward)(const PlainBackwardArgs&, int64_t row_begin, int64_t row_end) noexcept;
};

// An activation that multiplies with a gate.
struct GatedActivation {
  void (*forward)(const GatedForwardArgs&, int64_t row_begin, int64_t row_end) noexcept;
  void (*backward)(const GatedBackwardArgs&, int64_t row_begin, int64_t row_end) noexcept;
};

struct ActivationKernels {
  GatedActivation swiglu, geglu, geglu_erf;
  PlainActivation gelu_tanh, gelu_erf, relu, relu_squared, silu;
};

const ActivationKernels& activation_kernels(Isa isa);

}  // namespace jige::cpu
