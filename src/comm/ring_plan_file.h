// The rings, rounds and trees of a plan that was kept: what `jige plan rings -o FILE` writes and
// collectives run.
//
//   JIGE_TRY(const RingPlan plan, load_ring_plan("ring.json", group_size));
//
// Reads of a file of "jige.ring-plan" the devices and the rings:
//   {"format": "jige.ring-plan", "version": 1, "devices": ["a", "b", "c"],
//    "rings": [{"order": [0, 2, 1], "weight": 0.75}, {"order": [0, 1, 2], "weight": 0.25}],
//    "rounds": [{"to": [1, 2, 0]}, {"to": [2, 0, 1]}],          (of an all-to-all, if any)
//    "trees": {"order": [2, 0, 1], "parents": [[1, -1, 1], [-1, 2, 0]],    (if any)
//              "bytes_max": 65536}, …}
// Of trees: which rank has which place, the parent of every place in each tree (-1: the root), and
// for messages of how many bytes they are; without the latter none until it is measured.
// Rank r is the device at place r. Which transfers carry an edge is not read: between processes the
// transport decides.
// Threads: pure functions.
#pragma once

#include <string>
#include <string_view>

#include "base/json.h"
#include "comm/ring_plan.h"

namespace jige::comm {

// Fails with kUnsupported for another format, kCorrupt for a field that is missing or of another
// kind, kInvalidArgument for rings that are none or have another number of ranks; all name `where`.
Result<RingPlan> ring_plan_from_json(const Json& json, int size, std::string_view where);

// The same of a file. Fails as reading does, too.
Result<RingPlan> load_ring_plan(const std::string& path, int size);

}  // namespace jige::comm
