// The rings that planners without knowledge of sharing would take; every report shows them beside
// the planned one.
// Threads: pure functions.
#pragma once

#include "plan/ring_facts.h"
#include "plan/ring_problem.h"

namespace jige::plan {

// Nodes in the order given, each edge by the usual transport: a push where there is peer access,
// otherwise through the receiver's own memory.
Ring rank_order_ring(const RingProblem& problem);

// What one link at a time can tell: the order whose slowest transfer, each measured alone, is
// fastest; of equal ones (within 3 %) the first, with the usual transport where it is as fast.
Ring single_link_ring(const RingProblem& problem, const RingFacts& facts);

// What a planner in the manner of NCCL would take, which shares out constants instead of measuring:
// links as described, 16 GB/s between sockets, host bridges and memory unlimited; direct transfers
// below a PCIe switch, elsewhere through the receiver's memory.
Result<Ring> constants_ring(const RingProblem& problem, uint64_t seed);

// The candidate of an edge that rank_order_ring takes.
int32_t usual_transport(const RingProblem& problem, int32_t from, int32_t to);

}  // namespace jige::plan
