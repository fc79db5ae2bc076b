#include "plan/cheapest_ring.h"

#include <algorithm>
#include <cstddef>
#include <limits>

#include "base/check.h"

namespace jige::plan {
namespace {

constexpr double kNoRing = std::numeric_limits<double>::infinity();

struct EdgeCosts {
  int32_t node_count;
  const std::vector<double>& cost;

  double edge(int32_t from, int32_t to) const {
    return cost[static_cast<size_t>(from * node_count + to)];
  }
  double ring(const std::vector<int32_t>& order) const {
    double sum = 0;
    for (size_t i = 0; i < order.size(); ++i) sum += edge(order[i], order[(i + 1) % order.size()]);
    return sum;
  }
};

// least[set][last]: of paths from node 0 through a set of the others that end at one of them.
CheapestRing by_sets(const EdgeCosts& costs) {
  const int32_t others = costs.node_count - 1;
  const size_t sets = size_t{1} << others;
  const auto cell = [&](size_t set, int32_t last) {
    return set * static_cast<size_t>(others) + static_cast<size_t>(last);
  };
  std::vector<double> least(sets * static_cast<size_t>(others), kNoRing);
  std::vector<int8_t> before(least.size(), -1);
  for (int32_t v = 0; v < others; ++v) least[cell(size_t{1} << v, v)] = costs.edge(0, v + 1);
  for (size_t set = 1; set < sets; ++set) {
    for (int32_t last = 0; last < others; ++last) {
      const double so_far = least[cell(set, last)];
      if (so_far == kNoRing) continue;
      for (int32_t next = 0; next < others; ++next) {
        const size_t bit = size_t{1} << next;
        if (set & bit) continue;
        const double with = so_far + costs.edge(last + 1, next + 1);
        if (with >= least[cell(set | bit, next)]) continue;
        least[cell(set | bit, next)] = with;
        before[cell(set | bit, next)] = static_cast<int8_t>(last);
      }
    }
  }
  CheapestRing best{.order = {}, .cost = kNoRing};
  int32_t last = 0;
  for (int32_t v = 0; v < others; ++v) {
    const double closed = least[cell(sets - 1, v)] + costs.edge(v + 1, 0);
    if (closed >= best.cost) continue;
    best.cost = closed;
    last = v;
  }
  for (size_t set = sets - 1; last >= 0;) {
    best.order.push_back(last + 1);
    const int32_t previous = before[cell(set, last)];
    set &= ~(size_t{1} << last);
    last = previous;
  }
  best.order.push_back(0);
  std::ranges::reverse(best.order);
  return best;
}

// Moves chains of up to three nodes to where they cost least, until nothing gains.
void move_chains(const EdgeCosts& costs, CheapestRing& ring) {
  const auto n = static_cast<size_t>(costs.node_count);
  for (bool improved = true; improved;) {
    improved = false;
    for (size_t length = 1; length <= 3 && length + 2 <= n; ++length) {
      for (size_t from = 1; from + length <= n; ++from) {
        std::vector<int32_t> rest = ring.order;
        const auto chain_begin = rest.begin() + static_cast<std::ptrdiff_t>(from);
        const auto chain_end = chain_begin + static_cast<std::ptrdiff_t>(length);
        const std::vector<int32_t> chain(chain_begin, chain_end);
        rest.erase(chain_begin, chain_end);
        for (size_t to = 1; to <= rest.size(); ++to) {
          std::vector<int32_t> order = rest;
          order.insert(order.begin() + static_cast<std::ptrdiff_t>(to), chain.begin(), chain.end());
          const double cost = costs.ring(order);
          if (cost >= ring.cost * (1 - 1e-12)) continue;
          ring = {std::move(order), cost};
          improved = true;
        }
      }
    }
  }
}

CheapestRing by_moves(const EdgeCosts& costs) {
  CheapestRing ring{.order = {0}, .cost = 0};
  for (int32_t node = 1; node < costs.node_count; ++node) {
    CheapestRing best{.order = {}, .cost = kNoRing};
    for (size_t to = 1; to <= ring.order.size(); ++to) {
      std::vector<int32_t> order = ring.order;
      order.insert(order.begin() + static_cast<std::ptrdiff_t>(to), node);
      const double cost = costs.ring(order);
      if (cost < best.cost) best = {std::move(order), cost};
    }
    ring = std::move(best);
  }
  move_chains(costs, ring);
  return ring;
}

}  // namespace

CheapestRing cheapest_ring(int32_t node_count, const std::vector<double>& cost) {
  JIGE_CHECK(node_count >= 2, "a ring over {} nodes", node_count);
  const EdgeCosts costs{node_count, cost};
  return node_count <= kExactCheapestNodes ? by_sets(costs) : by_moves(costs);
}

}  // namespace jige::plan
