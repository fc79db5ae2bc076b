// What planners that know less would choose, and what it costs them.
#include "plan/ring_baselines.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "plan/ring_planner.h"
#include "plan/ring_test_support.h"
#include "profile/simulated_meter.h"
#include "topology/fluid.h"

namespace jige::plan {
namespace {

using topology::Topology;

// The rate of a ring by the fluid model of the truth, without planner or profiler.
double true_rate(const RingProblem& problem, const Ring& ring) {
  std::vector<topology::Flow> flows;
  for (const int32_t c : ring) flows.push_back({problem.at(c).usage, 1});
  return std::ranges::min(topology::max_min_rates(problem.topology->resources(), flows));
}

// Of 200 networks with unequal links, slow pairs and a trunk: a planner that knows single links
// alone takes another order than rank order in most, gains by that on average, and still loses to
// the plan in most, since it cannot see what its links share.
TEST(RingBaselines, SingleLinksChooseOtherwiseThanRankOrderAndLoseToThePlan) {
  constexpr int kSeeds = 100;
  int other_order = 0, beaten = 0, beaten_where_other = 0;
  double solo_gain = 0, plan_gain = 0;
  for (uint64_t seed = 0; seed < kSeeds; ++seed) {
    Rng rng(derive_key(8, "unequal network", seed));
    const Topology network = made(uneven_network(rng, 6));
    const RingProblem problem = *ring_problem(network, ring_devices(network), {});
    profile::SimulatedMeter meter(network);
    profile::Profiler profiler(network, meter);
    const auto plan = plan_ring(problem, profiler, {.budget_s = 1e9, .symmetry = false});
    ASSERT_TRUE(plan) << plan.error().message;
    const double planned = true_rate(problem, plan->best.front().ring);
    const double solo = true_rate(problem, plan->single_link.ring);
    const double naive = true_rate(problem, plan->rank_order.ring);
    ASSERT_NEAR(planned, plan->best.front().rate, 1e-6);
    ASSERT_NEAR(solo, plan->single_link.rate, 1e-6);
    ASSERT_GE(planned, solo * (1 - 1e-9)) << seed;
    ASSERT_GE(planned, naive * (1 - 1e-9)) << seed;
    const bool other = plan->single_link.ring != plan->rank_order.ring;
    const bool loses = planned > solo * 1.05;
    other_order += other;
    beaten += loses;
    beaten_where_other += other && loses;
    solo_gain += solo / naive / kSeeds;
    plan_gain += planned / solo / kSeeds;
  }
  RecordProperty("other_order", other_order);
  RecordProperty("beaten", beaten);
  RecordProperty("beaten_where_other", beaten_where_other);
  RecordProperty("solo_over_naive_percent", static_cast<int>(100 * solo_gain));
  RecordProperty("plan_over_solo_percent", static_cast<int>(100 * plan_gain));
  EXPECT_GE(other_order, kSeeds / 2);
  EXPECT_GE(beaten, kSeeds * 3 / 4);
  EXPECT_GE(beaten_where_other, kSeeds * 2 / 5);
  EXPECT_GT(solo_gain, 1.2);
  EXPECT_GT(plan_gain, 1.5);
}

}  // namespace
}  // namespace jige::plan
