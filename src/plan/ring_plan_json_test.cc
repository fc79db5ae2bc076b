#include "plan/ring_plan_json.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "comm/ring_plan_file.h"
#include "profile/simulated_meter.h"
#include "topology/reference_topologies.h"

namespace jige::plan {
namespace {

TEST(RingPlanJson, ListsTheRingsThatCollectivesRun) {
  const topology::Topology network = *topology::reference_topology("trunk-4host");
  const RingProblem problem = *ring_problem(network, ring_devices(network), {});
  profile::SimulatedMeter meter(network);
  profile::Profiler profiler(network, meter);
  const RingPlan plan = *plan_ring(problem, profiler, {});
  const Json alone = ring_plan_to_json(problem, plan, "simulated");
  EXPECT_EQ(alone["devices"], Json({"host0", "host1", "host2", "host3"}));
  ASSERT_EQ(alone["rings"].size(), 1u);
  EXPECT_EQ(alone["rings"][0]["weight"], 1);
  EXPECT_EQ(alone["rings"][0]["transfers"], alone["ring"]["transfers"]);
  EXPECT_FALSE(alone.contains("mix"));

  RingMixPlan mix = *plan_mix(problem, profiler, plan, {});
  mix.best.front().mix.rings = {{plan.best.front().ring, 0.75}, {plan.rank_order.ring, 0.25}};
  const Json both = ring_plan_to_json(problem, plan, "simulated", &mix);
  ASSERT_EQ(both["rings"].size(), 2u);
  EXPECT_EQ(both["rings"][1]["order"], Json({0, 1, 2, 3}));
  EXPECT_EQ(both["rings"][1]["weight"], 0.25);
  EXPECT_EQ(both["mix"]["rate"], mix.best.front().rate);
  EXPECT_EQ(both["mix"]["compared"].size(), mix.best.size() - 1);
}

TEST(RingPlanJson, ListsTheRoundsOfAnAllToAll) {
  const topology::Topology network = *topology::reference_topology("trunk-4host");
  const RingProblem problem = *ring_problem(network, ring_devices(network), {});
  profile::SimulatedMeter meter(network);
  profile::Profiler profiler(network, meter);
  const RingPlan plan = *plan_ring(problem, profiler, {});
  const RoundPlan rounds = *plan_rounds(problem, profiler, {});
  Json json = ring_plan_to_json(problem, plan, "simulated");
  add_rounds_to_json(json, problem, rounds);
  ASSERT_EQ(json["rounds"].size(), 3u);
  EXPECT_EQ(json["rounds"][0]["to"], Json(round_targets(problem, rounds.best.front().rounds[0])));
  EXPECT_EQ(json["rounds"][0]["transfers"].size(), 4u);
  EXPECT_EQ(json["all_to_all"]["seconds"], rounds.best.front().seconds);
  EXPECT_EQ(json["all_to_all"]["compared"].size(), rounds.best.size() - 1);
  EXPECT_FALSE(json["all_to_all"].contains("rounds"));
}

TEST(RingPlanJson, ListsDoubleTrees) {
  const topology::Topology network = *topology::reference_topology("trunk-4host");
  const RingProblem problem = *ring_problem(network, ring_devices(network), {});
  profile::SimulatedMeter meter(network);
  profile::Profiler profiler(network, meter);
  const RingPlan plan = *plan_ring(problem, profiler, {});
  const TreePlan trees = *plan_trees(problem, profiler, plan, {});
  Json json = ring_plan_to_json(problem, plan, "simulated");
  add_trees_to_json(json, trees, plan.best.front().rate);
  EXPECT_EQ(json["trees"]["order"].size(), 4u);
  EXPECT_EQ(json["trees"]["parents"][0], Json({1, 3, 1, -1}));
  EXPECT_EQ(json["trees"]["depth"], 2);
  EXPECT_EQ(json["trees"]["rate"], trees.best.front().rate);
  EXPECT_GT(json["trees"]["crossover_bytes"].get<double>(), 0);
}

TEST(RingPlanJson, IsReadBackAsCollectivesRunIt) {
  const topology::Topology box = *topology::reference_topology("pcie-4gpu-2numa");
  const RingProblem problem = *ring_problem(box, ring_devices(box), {});
  profile::SimulatedMeter meter(box);
  profile::Profiler profiler(box, meter);
  const RingPlan plan = *plan_ring(problem, profiler, {});
  Json json = ring_plan_to_json(problem, plan, "simulated");
  EXPECT_EQ(json["rates"], "simulated");
  EXPECT_EQ(json["proven"], true);
  EXPECT_EQ(json["budget_ended"], false);
  EXPECT_TRUE(json["baselines"].contains("rank order"));
  const RoundPlan rounds = *plan_rounds(problem, profiler, {});
  add_rounds_to_json(json, problem, rounds);
  TreePlan trees = *plan_trees(problem, profiler, plan, {});
  trees.measured_crossover_bytes = 4096;
  add_trees_to_json(json, trees, plan.best.front().rate);

  const auto read = comm::ring_plan_from_json(*parse_json(dump_json(json), "p"), 4, "plan.json");
  ASSERT_TRUE(read) << read.error().message;
  ASSERT_EQ(read->rings.size(), 1u);
  std::vector<int> order;
  for (const int32_t candidate : plan.best.front().ring) {
    order.push_back(problem.at(candidate).from);
  }
  EXPECT_EQ(read->rings[0].order, order);
  ASSERT_EQ(read->rounds.size(), 3u);
  EXPECT_EQ(read->rounds[2], round_targets(problem, rounds.best.front().rounds[2]));
  ASSERT_TRUE(read->trees);
  EXPECT_EQ(read->trees->parent, comm::TreePair::over(trees.best.front().trees.nodes).parent);
  EXPECT_EQ(read->trees->bytes_max, 4096);
}

}  // namespace
}  // namespace jige::plan
