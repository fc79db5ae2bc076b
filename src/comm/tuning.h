// Where the direct path stops paying, and where trees do, measured once and kept.
//
// A file holds one entry a transport, number of ranks and plan (whatever its trees' bytes_max):
//   {"format": "jige.comm-tuning", "version": 1,
//    "entries": [{"transport": "shm", "ranks": 4, "plan": 123, "direct_bytes_max": 16384,
//                 "tree_bytes_max": 65536}]}        (the latter: of a plan with trees)
// The size up to which trees are taken decides about bits (tree_pair.h): keep it in the plan's file
// or in this one where they shall be the same in every run.
// Threads: one thread.
#pragma once

#include <optional>
#include <string>

#include "comm/communicator.h"

namespace jige::comm {

struct Tuning {
  int64_t direct_bytes_max = 0;
  int64_t tree_bytes_max = kTreesUnmeasured;  // without trees it stays that

  bool operator==(const Tuning&) const = default;
};

// Times all-reduces of growing size on two paths, in turns, and gives the largest size up to which
// the first is the faster, 0 if at none; sets it. The same on all ranks: rank 0 decides. Take some
// tenths of a second each.
// The direct path against what else carries such sizes: rings, or trees up to where they end.
Result<int64_t> measure_direct_bytes_max(Communicator& group);
// Trees against rings. REQUIRES: the plan has trees.
Result<int64_t> measure_tree_bytes_max(Communicator& group);
// Both: first where trees end, if the plan has any and leaves that open.
Result<Tuning> measure_tuning(Communicator& group);

// The entry for a group, nothing if the file has none (or lacks what the plan leaves open) or is
// not there; kCorrupt if it is damaged.
Result<std::optional<Tuning>> load_tuning(const std::string& path, const Communicator& group);
// Adds or replaces the entry.
Status store_tuning(const std::string& path, const Communicator& group, const Tuning& tuning);

}  // namespace jige::comm
