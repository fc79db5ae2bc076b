#include "plan/ring_cost_bound.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <numeric>

#include "base/rng.h"
#include "plan/cheapest_ring.h"

namespace jige::plan {
namespace {

std::vector<double> random_costs(Rng& rng, int32_t n) {
  std::vector<double> cost(static_cast<size_t>(n * n));
  for (double& c : cost) c = rng.below(4) == 0 ? 0 : rng.uniform();
  return cost;
}

// Over all choices of a node before each: those that lead back to the root.
double least_arborescence(int32_t n, int32_t root, const std::vector<double>& cost) {
  double least = std::numeric_limits<double>::infinity();
  std::vector<int32_t> before(static_cast<size_t>(n), -1);
  const std::function<void(int32_t, double)> choose = [&](int32_t to, double sum) {
    if (to == n) {
      for (int32_t node = 0; node < n; ++node) {
        int32_t at = node;
        for (int32_t i = 0; i < n && at != root; ++i) at = before[static_cast<size_t>(at)];
        if (at != root) return;
      }
      least = std::min(least, sum);
      return;
    }
    if (to == root) return choose(to + 1, sum);
    for (int32_t from = 0; from < n; ++from) {
      if (from == to) continue;
      before[static_cast<size_t>(to)] = from;
      choose(to + 1, sum + cost[static_cast<size_t>(from * n + to)]);
    }
  };
  choose(0, 0);
  return least;
}

TEST(RingCostBound, ArborescencesAreThoseOfEnumeration) {
  for (uint64_t seed = 0; seed < 300; ++seed) {
    Rng rng(derive_key(1, "arborescence", seed));
    const auto n = static_cast<int32_t>(2 + rng.below(4));
    const auto root = static_cast<int32_t>(rng.below(static_cast<uint64_t>(n)));
    std::vector<double> cost = random_costs(rng, n);
    for (double& c : cost) c -= 0.3;
    const std::vector<int32_t> before = cheapest_arborescence(n, root, cost);
    double sum = 0;
    for (int32_t to = 0; to < n; ++to) {
      const int32_t from = before[static_cast<size_t>(to)];
      ASSERT_EQ(from < 0, to == root);
      if (from >= 0) sum += cost[static_cast<size_t>(from * n + to)];
      int32_t at = to;
      for (int32_t i = 0; i < n && at != root; ++i) at = before[static_cast<size_t>(at)];
      ASSERT_EQ(at, root);
    }
    ASSERT_NEAR(sum, least_arborescence(n, root, cost), 1e-9) << "seed " << seed;
  }
}

TEST(RingCostBound, NoRingCostsLessAndItIsNotFarBelow) {
  double ratios = 0;
  constexpr int kSeeds = 100;
  for (uint64_t seed = 0; seed < kSeeds; ++seed) {
    Rng rng(derive_key(2, "ring bound", seed));
    const auto n = static_cast<int32_t>(3 + rng.below(8));
    const std::vector<double> cost = random_costs(rng, n);
    const CheapestRing cheapest = cheapest_ring(n, cost);
    const double exact = cheapest.cost;
    const double bound = ring_cost_bound(n, cost, cheapest, {});
    ASSERT_LE(bound, exact + 1e-9) << "seed " << seed;
    ratios += exact > 0 ? bound / exact : 1;
  }
  EXPECT_GT(ratios / kSeeds, 0.9);
}

// Two leaves whose trunk alone costs: every ring crosses it once each way.
TEST(RingCostBound, SeesThatARingComesBack) {
  constexpr int32_t kNodes = 16;
  std::vector<double> cost(kNodes * kNodes, 0);
  for (int32_t a = 0; a < kNodes; ++a) {
    for (int32_t b = 0; b < kNodes; ++b) {
      if (a % 2 != b % 2) cost[static_cast<size_t>(a * kNodes + b)] = 1;
    }
  }
  const CheapestRing known = cheapest_ring(kNodes, cost);
  ASSERT_EQ(known.cost, 2);
  const double bound = ring_cost_bound(kNodes, cost, known, {});
  EXPECT_LE(bound, 2 + 1e-9);
  EXPECT_GT(bound, 1.9);
}

}  // namespace
}  // namespace jige::plan
