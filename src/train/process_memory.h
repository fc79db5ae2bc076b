// Memory of this process and this machine, as the kernel counts it.
//
// Threads: pure reads of /proc and /sys.
#pragma once

#include <cstdint>

namespace jige::train {

// The largest resident size this process ever had (VmHWM), in bytes; 0 where the kernel does not
// say.
int64_t process_peak_bytes();

// The resident memory of this process that belongs to no file, in bytes (RssAnon); 0 if unknown.
int64_t process_private_bytes();

// What this process may use at most: physical memory, or the limit of its control group where that
// is lower.
int64_t machine_memory_bytes();

}  // namespace jige::train
