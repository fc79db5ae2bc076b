// A lower bound on the cost of every ring over edges that have a cost each, for more nodes than an
// exact search can do.
//
//   const CheapestRing known = cheapest_ring(16, cost);          // cost[from * 16 + to]
//   const double least = ring_cost_bound(16, cost, known, {});   // none costs less
//
// A ring enters every node once and leaves every node once. Without the second, the cheapest is a
// tree that leads from node 0 to all others (Edmonds 1967) and an edge back to node 0. A price on
// leaving each node, paid back once, changes the cost of no ring, but of such trees; prices are
// raised where a tree leaves a node more than once and lowered where it does not (Held and Karp
// 1970), and the best bound met counts. Of trees that cost the same the one like the known ring is
// taken, for which the bound loses a ten-thousandth.
// Threads: pure functions.
#pragma once

#include <cstdint>
#include <vector>

#include "plan/cheapest_ring.h"

namespace jige::plan {

struct RingCostBoundOptions {
  int32_t rounds = 1000;  // fewer for many nodes
};

// REQUIRES: at least two nodes, a finite cost for each ordered pair of different ones; a ring over
// them, the cheaper the better.
double ring_cost_bound(int32_t node_count, const std::vector<double>& cost,
                       const CheapestRing& known, const RingCostBoundOptions& options);

// The cheapest tree that leads from `root` to all nodes, as the node before each; -1 for the root.
// REQUIRES: as above; costs may be negative.
std::vector<int32_t> cheapest_arborescence(int32_t node_count, int32_t root,
                                           const std::vector<double>& cost);

}  // namespace jige::plan
