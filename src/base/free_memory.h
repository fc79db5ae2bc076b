// What the host has left, for what must stay in its memory, as pages that GPUs copy from do.
//
// Threads: pure reads of /proc and /sys.
#pragma once

#include <cstdint>
#include <string>

namespace jige {

// Bytes that can be taken now without pushing out what others use: what the kernel calls available
// and, where the process's control group has a limit, what it leaves; files in memory that were not
// used lately count as free. INT64_MAX where nothing says.
int64_t host_free_bytes();

// The same of files as the kernel writes them; empty ones say nothing. `limit` and `used` are the
// group's memory.max and memory.current, or limit_in_bytes and usage_in_bytes, `stat` its
// memory.stat.
struct MemoryFiles {
  std::string meminfo, limit, used, stat;
};
int64_t free_bytes_of(const MemoryFiles& files);

}  // namespace jige
