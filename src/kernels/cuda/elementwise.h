// Sums and conversions of matrices. Threads: asynchronous on the stream.
#pragma once

#include "kernels/cpu/types.h"
#include "kernels/cuda/launch.h"

namespace jige::cuda {

// dst = a + b, f32 or bf16 each; dst may be a or b.
void add(const LaunchStream& stream, const cpu::Rows& dst, const cpu::ConstRows& a,
         const cpu::ConstRows& b, int64_t rows, int64_t columns);

}  // namespace jige::cuda
