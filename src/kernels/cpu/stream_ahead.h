// How far ahead of reading them kernels ask for weights that come from memory.
// Threads: may be called from any thread.
#pragma once

#include <cstdint>

#include "base/cpu.h"

namespace jige::cpu {

// For products of a few rows, which wait for their weights: bytes; 0: each kernel has a way of its
// own. What a processor foresees by itself ends with a page of 4 KiB, and asking within it is in
// its way. Zen 5 gains, Zen 4 does not, others were not measured (docs/decisions/0001, "Later: few
// rows on Zen 5").
inline int64_t stream_ahead_bytes() { return cpu_features().amd_family >= 0x1a ? 8192 : 0; }

}  // namespace jige::cpu
