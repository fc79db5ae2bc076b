// Which parameters a device holds when, if they live on the host: a cache of a few stages, planned
// ahead since all uses are known.
//
// A *visit* is one stay of a range of blocks on the device, from its fetch to its release. When the
// room is used up, the visit whose next use is farthest away leaves (Belady: fewest fetches); among
// those never used again, the one used longest ago, so that the next fetch can start early.
// Invariant: at most `capacity` visits overlap, since each beyond the first `capacity` names one
// that must be released before it is fetched.
// Threads: pure functions.
#pragma once

#include <cstdint>
#include <vector>

#include "plan/pipeline_schedule.h"

namespace jige::plan {

struct ResidencyVisit {
  BlockRange blocks;
  size_t last_use = 0;   // index into the uses
  int32_t follows = -1;  // the visit whose release makes room, or -1
};

struct ResidencyPlan {
  std::vector<ResidencyVisit> visits;  // in order of their first use
  std::vector<int32_t> visit_of_use;   // -1 for a use of nothing
};

// `uses`: what each task of a device needs, in order; an empty range needs nothing.
// REQUIRES: capacity >= 1.
ResidencyPlan plan_residency(const std::vector<BlockRange>& uses, int32_t capacity);

}  // namespace jige::plan
