// The gates of the delta rule and of Mamba 2: see ops/delta_gates.h.
// Threads: asynchronous on the stream.
#pragma once

#include "kernels/cpu/delta_gates.h"
#include "kernels/cuda/launch.h"

namespace jige::cuda {

void delta_gates_forward(const LaunchStream& stream, const cpu::DeltaGateForwardArgs& args,
                         int64_t rows);
void delta_gates_backward(const LaunchStream& stream, const cpu::DeltaGateBackwardArgs& args,
                          int64_t rows);

}  // namespace jige::cuda
