// The tile engine in plain C++, with the arithmetic that the AMX instruction TDPBF16PS is
// documented to have: the measure for the hardware's, and what tests the code around tiles on any
// machine. Threads: a constant.
#pragma once

#include "kernels/cpu/gemm_engine.h"

namespace jige::cpu {

extern const GemmEngine kGemmTilePlain;

}  // namespace jige::cpu
