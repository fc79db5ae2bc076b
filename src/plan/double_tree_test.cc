#include "plan/double_tree.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <numeric>

#include "plan/ring_test_support.h"
#include "plan/tree_planner.h"
#include "profile/simulated_meter.h"
#include "topology/reference_topologies.h"

namespace jige::plan {
namespace {

using topology::Topology;

TEST(DoubleTree, TwoTreesOverAllPlacesInWhichNobodyWorksTwice) {
  for (int32_t n = 2; n <= 70; ++n) {
    const std::array<TreeShape, 2> shapes = double_tree_shape(n);
    std::vector<int32_t> with_children(static_cast<size_t>(n), 0);
    for (const TreeShape& shape : shapes) {
      int32_t roots = 0, deepest = 0;
      for (int32_t place = 0; place < n; ++place) {
        int32_t depth = 0, at = place;
        while (shape.parent[static_cast<size_t>(at)] >= 0 && depth <= n) {
          at = shape.parent[static_cast<size_t>(at)];
          ++depth;
        }
        ASSERT_LE(depth, n) << "no way to the root";
        deepest = std::max(deepest, depth);
        roots += shape.parent[static_cast<size_t>(place)] < 0;
        const size_t children = shape.children(place).size();
        ASSERT_LE(children, 2u);
        with_children[static_cast<size_t>(place)] += children > 0;
      }
      EXPECT_EQ(roots, 1);
      EXPECT_EQ(deepest, shape.depth);
      EXPECT_LE(deepest, std::bit_width(static_cast<uint32_t>(n)));
    }
    EXPECT_LE(std::ranges::max(with_children), 1) << n << " places";
  }
}

// The time of all edges at once, by what each takes of every resource.
double true_tree_rate(const RingProblem& problem, const std::vector<TransferShare>& shares) {
  std::vector<double> load(problem.topology->resources().size(), 0);
  for (const TransferShare& s : shares) {
    for (const topology::Usage& u : problem.at(s.candidate).usage) {
      const auto r = static_cast<size_t>(u.resource);
      load[r] += u.cost * s.share / problem.topology->resources()[r].gb_per_s;
    }
  }
  return 1 / std::ranges::max(load);
}

RingPlan ring_of(const RingProblem& problem, profile::Profiler& profiler) {
  auto plan = plan_ring(problem, profiler, {.budget_s = 1e9, .symmetry = false});
  EXPECT_TRUE(plan) << plan.error().message;
  return std::move(*plan);
}

// Every order of the devices over the places, one way an edge.
TEST(DoubleTree, EqualsBruteForceOnRandomNetworks) {
  int gains = 0;
  for (uint64_t seed = 0; seed < 40; ++seed) {
    Rng rng(derive_key(1, "tree network", seed));
    const auto n = static_cast<int32_t>(2 + rng.below(4));
    const Topology network = made(random_network(rng, n));
    const RingProblem problem = *ring_problem(network, ring_devices(network), {});
    profile::SimulatedMeter meter(network);
    profile::Profiler profiler(network, meter);
    const auto plan = plan_trees(problem, profiler, ring_of(problem, profiler), {.budget_s = 1e9});
    ASSERT_TRUE(plan) << plan.error().message;
    const std::array<TreeShape, 2> shapes = double_tree_shape(n);
    std::vector<int32_t> nodes(static_cast<size_t>(n));
    std::iota(nodes.begin(), nodes.end(), 0);
    double best = 0;
    do {
      std::vector<TransferShare> shares;
      for (const TreeShape& shape : shapes) {
        for (size_t place = 0; place < nodes.size(); ++place) {
          const int32_t above = shape.parent[place];
          if (above < 0) continue;
          const int32_t other = nodes[static_cast<size_t>(above)];
          shares.push_back({problem.edge(nodes[place], other).front(), 0.5});
          shares.push_back({problem.edge(other, nodes[place]).front(), 0.5});
        }
      }
      best = std::max(best, true_tree_rate(problem, shares));
    } while (std::next_permutation(nodes.begin(), nodes.end()));
    ASSERT_NEAR(plan->best.front().rate / best, 1, 1e-6) << "seed " << seed;
    ASSERT_TRUE(plan->unpromised);
    const auto naive = std::ranges::find(plan->best, "rank order", &MeasuredTrees::name);
    ASSERT_NE(naive, plan->best.end());
    gains += plan->best.front().rate > naive->rate * 1.05;
  }
  EXPECT_GT(gains, 10);
}

TEST(DoubleTree, RingsTakeOverAtThePredictedSize) {
  const Topology box = *topology::reference_topology("pcie-8gpu-2numa");
  const RingProblem problem = *ring_problem(box, ring_devices(box), {});
  profile::SimulatedMeter meter(box);
  profile::Profiler profiler(box, meter);
  const RingPlan single = *plan_ring(problem, profiler, {.budget_s = 20});
  const auto plan = plan_trees(problem, profiler, single, {.latency_s = 20e-6});
  ASSERT_TRUE(plan) << plan.error().message;
  const double ring = single.best.front().rate;
  const auto crossover = plan->crossover_bytes(ring);
  ASSERT_TRUE(crossover) << "trees carry less than a ring";
  EXPECT_GT(*crossover, 1000);
  const TreePlan::Times below = plan->times(*crossover * 0.9, ring);
  const TreePlan::Times above = plan->times(*crossover * 1.1, ring);
  EXPECT_LT(below.trees_s, below.ring_s);
  EXPECT_GT(above.trees_s, above.ring_s);
  // 14 steps against 2 * 3 or 2 * 4 of a tree over eight.
  EXPECT_NEAR(plan->times(0, ring).ring_s, 14 * 20e-6, 1e-12);
  EXPECT_LE(plan->times(0, ring).trees_s, 8 * 20e-6 + 1e-12);
}

// All-reduces that take a latency for each byte's place: trees over rank order win, up to 16 KiB.
TEST(DoubleTree, AllReducesDecideAndTellWhereRingsTakeOver) {
  Rng rng(derive_key(3, "tree collectives"));
  const Topology network = made(random_network(rng, 5));
  const RingProblem problem = *ring_problem(network, ring_devices(network), {});
  profile::SimulatedMeter meter(network);
  profile::Profiler profiler(network, meter);
  const RingPlan single = ring_of(problem, profiler);
  TreePlanOptions options{.budget_s = 1e9, .message_bytes = 4096};
  options.collective = [](const DoubleTree* trees, int64_t bytes) -> Result<double> {
    const auto size = static_cast<double>(bytes);
    if (!trees) return 20e-6 + size * 1e-9;
    const bool naive = std::ranges::is_sorted(trees->nodes);
    return (naive ? 4e-6 : 6e-6) + size * 2e-9;
  };
  const auto plan = plan_trees(problem, profiler, single, options);
  ASSERT_TRUE(plan) << plan.error().message;
  EXPECT_EQ(plan->best.front().name, "rank order");
  EXPECT_NEAR(plan->best.front().collective_s, 4e-6 + 4096 * 2e-9, 1e-12);
  EXPECT_NEAR(plan->ring_collective_s, 20e-6 + 4096 * 1e-9, 1e-12);
  EXPECT_LE(plan->best.size(), 4u);
  // 4^k KiB are tried; beyond 16 000 bytes the ring is faster.
  EXPECT_EQ(plan->measured_crossover_bytes, 4096);
  EXPECT_EQ(plan->bytes_max(single.best.front().rate), 4096);
  options.collective = [](const DoubleTree* trees, int64_t) -> Result<double> {
    return trees ? 2e-6 : 1e-6;
  };
  EXPECT_EQ(plan_trees(problem, profiler, single, options)->measured_crossover_bytes, 0);
  options.collective = [](const DoubleTree*, int64_t) -> Result<double> {
    return fail(Code::kUnavailable, "rank 2 died");
  };
  EXPECT_EQ(plan_trees(problem, profiler, single, options).error().message, "rank 2 died");
}

// All-reduces that take a second each; a set takes almost nothing.
TEST(DoubleTree, AllReducesKeepToTheBudget) {
  Rng rng(derive_key(3, "tree collectives"));
  const Topology network = made(random_network(rng, 5));
  const RingProblem problem = *ring_problem(network, ring_devices(network), {});
  profile::SimulatedMeter meter(network, {.bytes = 1000});
  profile::Profiler profiler(network, meter);
  const RingPlan single = ring_of(problem, profiler);
  for (const double budget_s : {0.0, 6.0, 12.0}) {
    std::vector<int64_t> sizes;
    TreePlanOptions options{.budget_s = budget_s, .message_bytes = 65536};
    options.collective = [&](const DoubleTree* trees, int64_t bytes) -> Result<double> {
      sizes.push_back(bytes);
      profiler.spend(1);
      return trees ? 1e-6 : 2e-6;
    };
    const auto plan = plan_trees(problem, profiler, single, options);
    ASSERT_TRUE(plan) << plan.error().message;
    // Ring and trees at two sizes at least.
    EXPECT_LE(plan->cost_s, std::max(4.0, budget_s + 1) + 0.1);
    EXPECT_GE(plan->cost_s, std::max(4.0, budget_s - 2));
    EXPECT_NEAR(plan->best.front().collective_s, 1e-6, 1e-12);
    EXPECT_NEAR(plan->ring_collective_s, 2e-6, 1e-12);
    EXPECT_EQ(sizes.front(), 65536);
    EXPECT_EQ(plan->measured_crossover_bytes, 65536);
  }
}

TEST(DoubleTree, NeverSlowerThanRankOrderWhereTheDescriptionIsWrong) {
  for (uint64_t seed = 0; seed < 15; ++seed) {
    Rng rng(derive_key(2, "hidden trees", seed));
    const Topology truth = made(random_network(rng, 5));
    topology::Description star{.name = "star"};
    for (int32_t i = 0; i < 5; ++i) {
      star.add({.name = fmt::format("h{}", i), .kind = topology::ComponentKind::kHost});
    }
    const int32_t hub = star.add({.name = "hub", .kind = topology::ComponentKind::kRouter});
    for (int32_t i = 0; i < 5; ++i) star.join({.from = i, .to = hub});
    const Topology believed = made(star);
    const RingProblem problem = *ring_problem(believed, ring_devices(believed), {});
    profile::SimulatedMeter meter(truth);
    profile::Profiler profiler(believed, meter);
    const auto plan = plan_trees(problem, profiler, ring_of(problem, profiler), {.budget_s = 1e9});
    ASSERT_TRUE(plan) << plan.error().message;
    const auto naive = std::ranges::find(plan->best, "rank order", &MeasuredTrees::name);
    ASSERT_GE(plan->best.front().rate, naive->rate);
  }
}

}  // namespace
}  // namespace jige::plan
