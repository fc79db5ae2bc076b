// The tile and pair engines in plain C++, with the arithmetic that the instructions TDPBF16PS and
// VDPBF16PS are documented to have: the measure for the hardware's, and what tests the code around
// them on any machine. Threads: constants.
#pragma once

#include "kernels/cpu/gemm_engine.h"

namespace jige::cpu {

extern const GemmEngine kGemmTilePlain;
extern const GemmEngine kGemmPairPlain;

}  // namespace jige::cpu
