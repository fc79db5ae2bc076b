// Which engine computes quantised products: the choice by instruction set, with a check at first
// use. All engines read the same panels and give the same bits.
//
// Engines prove themselves once per process: on small products, saturating ones among them, they
// must give the bits of the plain model. One that fails is reported in the log, and the next weaker
// one takes its place. AVX512_VNNI is used from avx512 on, where the processor has it.
// Threads: every function may be called from any thread.
#pragma once

#include <vector>

#include "base/cpu.h"
#include "kernels/cpu/quant_format.h"

namespace jige::cpu {

// The engine under the active instruction set.
const QuantEngine& quant_engine();

// All engines this machine can run, the plain one first.
std::vector<const QuantEngine*> quant_engines();

// Whether an engine agrees with the plain model on small products. Exposed for tests.
bool quant_engine_agrees(const QuantEngine& engine);

}  // namespace jige::cpu
