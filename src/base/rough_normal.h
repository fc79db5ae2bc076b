// Numbers that tests fill matrices with: about normal, from one draw of 64 bits and without
// logarithms and cosines, which would take longer than what is tested.
//
//   Rng rng(derive_key(7, "gemm"));
//   const float value = rough_normal(rng);
//
// The sum of four uniform numbers: mean 0, deviation 1, never beyond 3.5.
// Included by tests only. Threads: as base/rng.h.
#pragma once

#include "base/rng.h"

namespace jige {

// One such number.
[[gnu::always_inline]] inline float rough_normal(Rng& rng) {
  const uint64_t bits = rng.next_u64();
  const uint64_t sum =
      (bits & 0xffff) + (bits >> 16 & 0xffff) + (bits >> 32 & 0xffff) + (bits >> 48);
  return (static_cast<float>(sum) * 0x1p-16f - 2.0f) * 1.7320508f;
}

}  // namespace jige
