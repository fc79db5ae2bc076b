// Which engine computes a product: the choice by instruction set, with a check at first use.
//
// Engines for AVX-512, AVX512_BF16 and AMX prove themselves once per process on small products:
// AVX-512 must give the bits of AVX2; pairs and tiles must be exact on whole numbers (where
// rounding plays no part, so a wrong layout or a missing permission shows) and close to the plain
// engine of their kind on random ones. An engine that fails is reported in the log and the next
// weaker one takes its place. Threads: every function may be called from any thread.
#pragma once

#include <vector>

#include "base/cpu.h"
#include "kernels/cpu/gemm_engine.h"
#include "tensor/dtype.h"

namespace jige::cpu {

// The engine for packed weights under the active instruction set. REQUIRES: compute f32 or bf16.
const GemmEngine& gemm_engine(DType compute);

// The engine for two operands that are both packed on the way: as gemm_engine, but chains of bf16
// use f32 panels of rounded values.
const GemmEngine& gemm_engine_unpacked(DType compute);

// All engines this machine can run, with the plain ones last; the number of an engine in
// this list is the same for the life of the process.
const std::vector<const GemmEngine*>& gemm_engines();

// Whether an engine agrees with its measure on small products. Exposed for tests.
bool gemm_engine_agrees(const GemmEngine& engine, const GemmEngine& measure);

}  // namespace jige::cpu
