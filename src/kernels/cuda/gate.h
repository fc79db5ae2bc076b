// Products with a gate that has a tensor of its own: see ops/gate.h.
//
// The table has the members of that of the CPU. Threads: asynchronous on the stream.
#pragma once

#include "kernels/cpu/gate.h"
#include "kernels/cuda/launch.h"

namespace jige::cuda {

struct GateKernel {
  void (*forward)(const LaunchStream& stream, const cpu::GateForwardArgs&, int64_t rows);
  void (*backward)(const LaunchStream& stream, const cpu::GateBackwardArgs&, int64_t rows);
};

struct GateKernels {
  GateKernel sigmoid, silu, plain;
};

const GateKernels& gate_kernels();

}  // namespace jige::cuda
