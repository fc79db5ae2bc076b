// Where the direct path stops paying, measured once and kept.
//
// A file holds one entry a transport, number of ranks and plan:
//   {"format": "jige.comm-tuning", "version": 1,
//    "entries": [{"transport": "shm", "ranks": 4, "plan": 123, "direct_bytes_max": 16384}]}
// Threads: one thread.
#pragma once

#include <optional>
#include <string>

#include "comm/communicator.h"

namespace jige::comm {

// Times all-reduces of growing size on both paths, sets the largest size up to which the direct
// path is the faster, and gives it. The same on all ranks: rank 0 decides. Takes some tenths of a
// second.
Result<int64_t> measure_direct_bytes_max(Communicator& group);

// The entry for a group, nothing if the file has none or is not there; kCorrupt if it is damaged.
Result<std::optional<int64_t>> load_tuning(const std::string& path, Communicator& group);
// Adds or replaces the entry.
Status store_tuning(const std::string& path, Communicator& group, int64_t direct_bytes_max);

}  // namespace jige::comm
