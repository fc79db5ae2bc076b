// Element-wise reductions of rows that came over a link.
//
// bf16 and f16 are widened to f32, combined, and rounded to nearest even after every addition: a
// sum over n ranks has n - 1 roundings. The order of additions is that of the caller.
// Threads: pure functions.
#pragma once

#include <cstddef>
#include <cstdint>

#include "comm/types.h"

namespace jige::comm {

// out[i] = left[i] op right[i]; kAvg adds. `out` may be either operand, overlapping otherwise is
// not allowed. REQUIRES: check_reducible(dtype).
void combine(DType dtype, RedOp op, const std::byte* left, const std::byte* right, std::byte* out,
             int64_t count);

// data[i] /= parts, for the end of an average. REQUIRES: check_reducible(dtype), parts >= 1.
void divide(DType dtype, std::byte* data, int64_t count, int parts);

}  // namespace jige::comm
