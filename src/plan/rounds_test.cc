#include "plan/rounds.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <numeric>
#include <set>

#include "plan/ring_test_support.h"
#include "plan/round_planner.h"
#include "profile/simulated_meter.h"
#include "topology/fluid.h"
#include "topology/reference_topologies.h"

namespace jige::plan {
namespace {

using topology::Topology;

// Whether rounds send every block once, each round from every node and to every node.
bool is_all_to_all(const RingProblem& problem, const std::vector<Round>& rounds) {
  const auto n = static_cast<size_t>(problem.node_count);
  std::set<std::pair<int32_t, int32_t>> sent;
  for (const Round& round : rounds) {
    std::set<int32_t> targets;
    for (size_t i = 0; i < round.size(); ++i) {
      if (problem.at(round[i]).from != static_cast<int32_t>(i)) return false;
      targets.insert(problem.at(round[i]).to);
      sent.insert({problem.at(round[i]).from, problem.at(round[i]).to});
    }
    if (round.size() != n || targets.size() != n) return false;
  }
  return rounds.size() == n - 1 && sent.size() == n * (n - 1);
}

// The time of a round by the fluid model of the truth, for blocks of 1 GB.
double round_seconds(const RingProblem& problem, const Topology& truth, const Round& round) {
  std::vector<topology::Flow> flows;
  for (const int32_t c : round) flows.push_back({*truth.usage(problem.at(c).transfer), 1});
  return 1 / std::ranges::min(topology::max_min_rates(truth.resources(), flows));
}

// The least time over all ways to send every block once in n - 1 rounds, filled in node by node
// without pruning. One way from each node to each other.
double best_rounds(const RingProblem& problem, const Topology& truth) {
  const auto n = static_cast<size_t>(problem.node_count);
  // table[r][i]: to whom node i sends in round r; the rounds' order does not matter, so node 0
  // sends to r + 1 in round r.
  std::vector<std::vector<int32_t>> table(n - 1, std::vector<int32_t>(n, -1));
  for (size_t r = 0; r + 1 < n; ++r) table[r][0] = static_cast<int32_t>(r + 1);
  double best = std::numeric_limits<double>::infinity();
  const std::function<void(size_t, size_t)> fill = [&](size_t node, size_t round) {
    if (node == n) {
      double seconds = 0;
      for (const auto& targets : table) {
        Round candidates;
        for (size_t i = 0; i < n; ++i) {
          candidates.push_back(problem.edge(static_cast<int32_t>(i), targets[i]).front());
        }
        seconds += round_seconds(problem, truth, candidates);
      }
      best = std::min(best, seconds);
      return;
    }
    if (round + 1 == n) {
      fill(node + 1, 0);
      return;
    }
    for (int32_t to = 0; to < problem.node_count; ++to) {
      if (to == static_cast<int32_t>(node)) continue;
      const auto taken = [&](int32_t value) { return value == to; };
      bool free = std::ranges::none_of(table[round], taken);
      for (size_t r = 0; r < round && free; ++r) free = table[r][node] != to;
      if (!free) continue;
      table[round][node] = to;
      fill(node, round + 1);
      table[round][node] = -1;
    }
  };
  fill(1, 0);
  return best;
}

MeasuredRounds shifted_of(const RoundPlan& plan) {
  const auto found = std::ranges::find(plan.best, "shifted", &MeasuredRounds::name);
  EXPECT_NE(found, plan.best.end());
  return found == plan.best.end() ? MeasuredRounds() : *found;
}

TEST(Rounds, EqualBruteForceOnRandomNetworks) {
  int gains = 0;
  for (uint64_t seed = 0; seed < 60; ++seed) {
    Rng rng(derive_key(1, "round network", seed));
    const auto hosts = static_cast<int32_t>(2 + rng.below(4));
    const Topology network =
        made(seed % 2 == 0 || hosts < 3 ? random_network(rng, hosts) : uneven_network(rng, hosts));
    const RingProblem problem = *ring_problem(network, ring_devices(network), {});
    profile::SimulatedMeter meter(network);
    profile::Profiler profiler(network, meter);
    const auto plan = plan_rounds(problem, profiler, {.budget_s = 1e9});
    ASSERT_TRUE(plan) << plan.error().message;
    const MeasuredRounds& best = plan->best.front();
    ASSERT_TRUE(is_all_to_all(problem, best.rounds));
    ASSERT_NEAR(best.seconds / best_rounds(problem, network), 1, 1e-6) << "seed " << seed;
    ASSERT_TRUE(plan->unpromised);
    ASSERT_LE(plan->bound_s, best.seconds * (1 + 1e-9));
    ASSERT_TRUE(is_all_to_all(problem, shifted_of(*plan).rounds));
    gains += best.seconds * 1.05 < shifted_of(*plan).seconds;
  }
  EXPECT_GT(gains, 8) << "the networks are not trivial";
}

// Too many combinations of ways to try all: two buffers that are full at once have to be relieved
// one after the other, and that nothing is faster is not claimed.
TEST(Rounds, BuffersAreSpreadThoughNotAllCombinationsAreTried) {
  topology::Description d{.name = "memories", .peer = topology::PeerAccess::kNone};
  const int32_t bridge = d.add({.name = "bridge", .kind = topology::ComponentKind::kHostBridge});
  for (int32_t i = 0; i < 4; ++i) {
    const int32_t gpu = d.add({.name = fmt::format("gpu{}", i)});
    d.join({.from = gpu, .to = bridge});
  }
  for (int32_t i = 0; i < 10; ++i) {
    const int32_t memory = d.add({.name = fmt::format("numa{}", i),
                                  .kind = topology::ComponentKind::kMemory,
                                  .numa = i,
                                  .gb_per_s = 10});
    d.join({.from = memory, .to = bridge, .kind = topology::LinkKind::kMemoryBus});
  }
  const Topology box = made(d);
  const RingProblem problem = *ring_problem(box, ring_devices(box), {});
  ASSERT_EQ(problem.edge(0, 1).size(), 10u);
  profile::SimulatedMeter meter(box);
  profile::Profiler profiler(box, meter);
  const auto plan = plan_rounds(problem, profiler, {});
  ASSERT_TRUE(plan) << plan.error().message;
  // Every block goes in and out of a memory of its own, in each of three rounds.
  EXPECT_NEAR(plan->best.front().seconds, 3 * 2 / 10.0, 1e-6);
  EXPECT_FALSE(plan->unpromised);
}

// The ways of a box matter as well: of all schedules and all ways of each round.
TEST(Rounds, ChooseWaysAsWell) {
  for (uint64_t seed = 0; seed < 6; ++seed) {
    Rng rng(derive_key(2, "round box", seed));
    topology::Description d = topology::make_pcie_box(
        {.numa_of_device = {0, 1, 0}, .bridge_gb_per_s = 14.0 + 10 * rng.uniform()});
    const Topology box = made(d);
    const RingProblem problem = *ring_problem(box, ring_devices(box), {});
    profile::SimulatedMeter meter(box);
    profile::Profiler profiler(box, meter);
    const auto plan = plan_rounds(problem, profiler, {.budget_s = 1e9});
    ASSERT_TRUE(plan);
    // Three nodes have two schedules' worth of rounds: to the next, and to the one before.
    double least = 0;
    for (const int32_t shift : {1, 2}) {
      double best = std::numeric_limits<double>::infinity();
      const auto ways = [&](int32_t i) { return problem.edge(i, (i + shift) % 3); };
      for (const int32_t a : ways(0)) {
        for (const int32_t b : ways(1)) {
          for (const int32_t c : ways(2)) {
            best = std::min(best, round_seconds(problem, box, {a, b, c}));
          }
        }
      }
      least += best;
    }
    ASSERT_NEAR(plan->best.front().seconds / least, 1, 1e-6) << "seed " << seed;
  }
}

// The description shows one switch; the network is another: never slower than the shifted rounds,
// and mostly close to the optimum that knowledge of it would give.
TEST(Rounds, LearnWhatTheDescriptionHides) {
  int near = 0;
  constexpr int kSeeds = 30;
  for (uint64_t seed = 0; seed < kSeeds; ++seed) {
    Rng rng(derive_key(3, "hidden rounds", seed));
    const Topology truth = made(random_network(rng, 4));
    topology::Description star{.name = "star"};
    for (int32_t i = 0; i < 4; ++i) {
      star.add({.name = fmt::format("h{}", i), .kind = topology::ComponentKind::kHost});
    }
    const int32_t hub = star.add({.name = "hub", .kind = topology::ComponentKind::kRouter});
    for (int32_t i = 0; i < 4; ++i) star.join({.from = i, .to = hub});
    const Topology believed = made(star);
    const RingProblem problem = *ring_problem(believed, ring_devices(believed), {});
    profile::SimulatedMeter meter(truth);
    profile::Profiler profiler(believed, meter);
    const auto plan = plan_rounds(problem, profiler, {.budget_s = 1e9});
    ASSERT_TRUE(plan) << plan.error().message;
    const double best = best_rounds(problem, truth);
    ASSERT_LE(plan->best.front().seconds, shifted_of(*plan).seconds * (1 + 1e-9));
    ASSERT_GE(plan->best.front().seconds, best * (1 - 1e-6));
    near += plan->best.front().seconds <= best * 1.05;
  }
  EXPECT_GE(near, kSeeds * 8 / 10);
}

TEST(Rounds, LargeProblemsAreImprovedWithoutAClaim) {
  // Two leaves of five, ranks in turns: a shifted round of odd shift sends everything across.
  const Topology network =
      made(topology::make_trunk_network({.hosts = 10, .trunk_gb_per_s = 0.25}));
  const RingProblem problem = *ring_problem(network, ring_devices(network), {});
  profile::SimulatedMeter meter(network);
  profile::Profiler profiler(network, meter);
  const auto plan = plan_rounds(problem, profiler, {.budget_s = 1e9});
  ASSERT_TRUE(plan) << plan.error().message;
  EXPECT_TRUE(is_all_to_all(problem, plan->best.front().rounds));
  EXPECT_LE(plan->best.front().seconds, shifted_of(*plan).seconds);
  // 25 blocks cross each way at two a second of link time, or more rounds wait for links.
  EXPECT_GE(plan->best.front().seconds, plan->bound_s * (1 - 1e-9));
}

TEST(Rounds, TheAllToAllItselfDecidesAndAFailureIsPassedOn) {
  const Topology network = *topology::reference_topology("trunk-4host");
  const RingProblem problem = *ring_problem(network, ring_devices(network), {});
  profile::SimulatedMeter meter(network);
  profile::Profiler profiler(network, meter);
  const std::vector<Round> shifted = shifted_rounds(problem);
  RoundPlanOptions options{.budget_s = 600};
  int32_t runs = 0;
  options.collective = [&](const std::vector<Round>& rounds) -> Result<double> {
    ++runs;
    return rounds == shifted ? 7.0 : 5.0;
  };
  const auto plan = plan_rounds(problem, profiler, options);
  ASSERT_TRUE(plan) << plan.error().message;
  EXPECT_EQ(plan->best.front().name, "shifted") << "though alone its rounds are slower";
  EXPECT_EQ(plan->best.front().collective, 7);
  EXPECT_GT(plan->best.size(), 1u);
  EXPECT_EQ(runs, 3 * static_cast<int32_t>(plan->best.size()));
  options.collective = [](const std::vector<Round>&) -> Result<double> {
    return fail(Code::kUnavailable, "rank 2 died");
  };
  EXPECT_EQ(plan_rounds(problem, profiler, options).error().message, "rank 2 died");
}

TEST(Rounds, AFailingMeterEndsItWithTheReason) {
  class SilentMeter final : public profile::LinkMeter {
   public:
    SilentMeter(const Topology& t, int good) : meter_(t), good_(good) {}
    Result<profile::Measurement> measure(std::span<const topology::Transfer> set) override {
      if (good_-- > 0) return meter_.measure(set);
      return fail(Code::kUnavailable, "host2 does not answer");
    }
    std::string_view source() const override { return "simulated"; }

   private:
    profile::SimulatedMeter meter_;
    int good_;
  };
  const Topology network = *topology::reference_topology("trunk-4host");
  const RingProblem problem = *ring_problem(network, ring_devices(network), {});
  for (const int good : {0, 5, 13, 16}) {
    SilentMeter meter(network, good);
    profile::Profiler profiler(network, meter);
    const auto plan = plan_rounds(problem, profiler, {});
    ASSERT_FALSE(plan) << good;
    EXPECT_EQ(plan.error().message, "host2 does not answer");
  }
}

}  // namespace
}  // namespace jige::plan
