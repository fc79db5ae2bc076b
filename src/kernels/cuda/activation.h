// SwiGLU, GeGLU and activations without a gate, as kernels/cpu/activation.h says.
//
// The tables have the members of those of the CPU. Threads: asynchronous on the stream.
#pragma once

#include "kernels/cpu/activation.h"
#include "kernels/cuda/launch.h"

namespace jige::cuda {

struct PlainActivation {
  void (*forward)(const LaunchStream& stream, const cpu::PlainForwardArgs&, int64_t rows);
  void (*backward)(const LaunchStream& stream, const cpu::PlainBackwardArgs&, int64_t rows);
};

struct GatedActivation {
  void (*forward)(const LaunchStream& stream, const cpu::GatedForwardArgs&, int64_t rows);
  void (*backward)(const LaunchStream& stream, const cpu::GatedBackwardArgs&, int64_t rows);
};

struct ActivationKernels {
  GatedActivation swiglu, geglu, geglu_erf;
  PlainActivation gelu_tanh, gelu_erf, relu, relu_squared, silu;
};

const ActivationKernels& activation_kernels();

}  // namespace jige::cuda
