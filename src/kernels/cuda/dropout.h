// Dropout by a counter, with the bits of kernels/cpu/dropout.h. Threads: asynchronous on the
// stream.
#pragma once

#include "kernels/cpu/dropout.h"
#include "kernels/cuda/launch.h"

namespace jige::cuda {

void dropout(const LaunchStream& stream, const cpu::DropoutArgs& args, int64_t rows);

}  // namespace jige::cuda
