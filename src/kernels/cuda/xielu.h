// xIELU on rows: see kernels/cpu/xielu.h. Threads: asynchronous on the stream.
#pragma once

#include "kernels/cpu/xielu.h"
#include "kernels/cuda/launch.h"

namespace jige::cuda {

void xielu_forward(const LaunchStream& stream, const cpu::XieluForwardArgs& args, int64_t rows);
void xielu_backward(const LaunchStream& stream, const cpu::XieluBackwardArgs& args, int64_t rows);

}  // namespace jige::cuda
