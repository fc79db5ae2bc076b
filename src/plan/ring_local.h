// Rings for more nodes than can be searched exhaustively: a beam for a start, then moves that turn,
// shift and swap parts of the order, taken while they lower a smooth measure of the load on every
// resource.
//
// Energy of a ring: sum over resources of (load / rate)^8, plus (1 / r)^8 for the rate that
// measurement bounds it to; its eighth root is close to 1 / predicted, but rewards every resource
// that is relieved.
// Threads: one caller. The same seed gives the same ring.
#pragma once

#include <cstdint>
#include <optional>
#include <set>

#include "plan/ring_facts.h"
#include "plan/ring_problem.h"
#include "plan/ring_search.h"

namespace jige::plan {

struct LocalOptions {
  int32_t beam_width = 24;
  int32_t moves = 4000;
  uint64_t seed = 1;
};

// A ring not yet tried with the best prediction found; `exhausted` is always set: no claim is made.
std::optional<RingProposal> local_ring(const RingProblem& problem, const RingFacts& facts,
                                       const std::set<Ring>& tried, const LocalOptions& options);

}  // namespace jige::plan
