// Reductions of contributions that lie in one place: the direct path's additions, in the order that
// the plan names, so that the bits are those of rings and trees (ring_plan.h, tree_pair.h).
//
// Threads: pure functions.
#pragma once

#include "comm/operation.h"

namespace jige::comm {

// What all ranks put in, one after another, beginning with that of a rank.
struct Contributions {
  const std::byte* data;
  int64_t bytes;  // of each
  int first;
  int size;

  const std::byte* of(int rank) const {
    const int place = rank - first;
    return data + (place < 0 ? place + size : place) * bytes;
  }
};

// operation.dst gets the result of an all-reduce.
void reduce_contributions(const RingPlan& plan, const Operation& operation,
                          const Contributions& all);

// operation.dst gets the owner's block of a reduce-scatter, or the whole that the root of a
// reduction has.
void reduce_for_owner(const RingPlan& plan, const Operation& operation, const Contributions& all,
                      int owner);

}  // namespace jige::comm
