// What the processor itself can do: the rates that kernels are measured against.
//
//   fma_chain    twelve independent chains of fused multiply-adds on registers: no memory, so the
//                rate is that of the arithmetic units. 24 · lanes operations a round.
//   read_stream  adds up an array once: the rate is that of the memory, for arrays larger than the
//                caches. One byte read a byte.
// Threads: pure functions; run one on every thread at the same time for the machine's rate.
#pragma once

#include <cstdint>

#include "base/cpu.h"

namespace jige::cpu {

struct ProbeKernels {
  // Runs `round_count` rounds; the result depends on every chain.
  float (*fma_chain)(int64_t round_count) noexcept;
  // Floating-point operations of one round.
  int64_t fma_chain_flops;
  // The sum of all elements.
  float (*read_stream)(const float* src, int64_t count) noexcept;
};

const ProbeKernels& probe_kernels(Isa isa);

}  // namespace jige::cpu
