// Memory of this process and this machine, as the kernel counts it.
//
// Threads: reads of /proc and /sys, from any.
#pragma once

#include <cstdint>

namespace jige::train {

// The largest resident size this process ever had (VmHWM), in bytes; 0 where the kernel does not
// say.
int64_t process_peak_bytes();

// The resident memory of this process that belongs to no file, in bytes (RssAnon); 0 if unknown.
int64_t process_private_bytes();

// Bytes of the heap that nobody holds.
int64_t free_heap_bytes();
// Gives free memory of the heap back to the kernel, where 4 MiB or more of it have come since there
// were so many bytes of it.
void return_freed_memory(int64_t free_before);

// What this process may use at most: physical memory, or the limit of its control group where that
// is lower.
int64_t machine_memory_bytes();

}  // namespace jige::train
