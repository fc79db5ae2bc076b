// Rotary position embeddings as ops/rope.h says. Threads: asynchronous on the stream.
#pragma once

#include "kernels/cpu/rope.h"
#include "kernels/cuda/launch.h"

namespace jige::cuda {

void rope(const LaunchStream& stream, const cpu::RopeArgs& args, int64_t rows);

}  // namespace jige::cuda
