// Which sixteen levels a weight of four bits has: even ones (kQ4) or uneven ones (kUneven4).
//
// A row of it is quantised to either, or up to 64 blocks spread over the row; uneven levels are
// taken where they leave no more of the squares. So numbers that come from even levels (a scale
// that is given, or that is found again) are kept as they are, and others are rounded less.
// Threads: pure functions.
#pragma once

#include <cstdint>

#include "kernels/cpu/quant_format.h"
#include "kernels/cpu/quant_pack.h"
#include "kernels/cpu/types.h"

namespace jige::cpu {

// REQUIRES: src has a row, which is f32, bf16 or f16. `scales`: those that are given, or none.
QuantFormat quant_levels(const ConstRows& src, int64_t depth, const QuantScales& scales);

}  // namespace jige::cpu
