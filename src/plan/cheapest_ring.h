// The ring of least total cost over edges that have a cost each: exact by dynamic programming over
// sets of nodes (Held and Karp, 1962) up to kExactCheapestNodes, beyond that by insertion and moves
// of short chains, without a claim.
//
//   const CheapestRing ring = cheapest_ring(4, cost);   // cost[from * 4 + to]
//
// Threads: pure functions.
#pragma once

#include <cstdint>
#include <vector>

namespace jige::plan {

inline constexpr int32_t kExactCheapestNodes = 12;

struct CheapestRing {
  std::vector<int32_t> order;  // node 0 first
  double cost = 0;
};

// REQUIRES: at least two nodes, costs from 0 on, one for each ordered pair.
CheapestRing cheapest_ring(int32_t node_count, const std::vector<double>& cost);

}  // namespace jige::plan
