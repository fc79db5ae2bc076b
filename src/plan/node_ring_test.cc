#include "plan/node_ring.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "base/rng.h"
#include "profile/simulated_meter.h"
#include "topology/reference_topologies.h"

namespace jige::plan {
namespace {

using topology::Topology;

// Tables with random rates; NICs are numbered from 0.
std::vector<ChainTable> random_tables(Rng& rng, int32_t classes) {
  std::vector<ChainTable> tables(static_cast<size_t>(classes));
  for (ChainTable& table : tables) {
    const auto nics = static_cast<int32_t>(1 + rng.below(3));
    for (int32_t a = 0; a < nics; ++a) {
      for (int32_t b = 0; b < nics; ++b) {
        table.chains[{a, b}].best.rate = 1 + 9 * rng.uniform();
      }
    }
  }
  return tables;
}

double rate_of(const std::vector<ChainTable>& tables, const std::vector<int32_t>& nodes,
               const NodeLinkRate& link, const NodeRing& ring) {
  double rate = 1e9;
  for (size_t i = 0; i < ring.order.size(); ++i) {
    const size_t next = (i + 1) % ring.order.size();
    const auto& table = tables[static_cast<size_t>(nodes[static_cast<size_t>(ring.order[i])])];
    rate = std::min(
        {rate, table.chains.at(ring.nics[i]).best.rate,
         link({ring.order[i], ring.nics[i].second}, {ring.order[next], ring.nics[next].first})});
  }
  return rate;
}

// Every order and every choice of NICs.
double best_node_ring(const std::vector<ChainTable>& tables, const std::vector<int32_t>& nodes,
                      const NodeLinkRate& link) {
  NodeRing ring;
  ring.order.resize(nodes.size());
  std::iota(ring.order.begin(), ring.order.end(), 0);
  ring.nics.resize(nodes.size());
  double best = 0;
  const std::function<void(size_t)> choose = [&](size_t i) {
    if (i == nodes.size()) {
      best = std::max(best, rate_of(tables, nodes, link, ring));
      return;
    }
    const auto& table = tables[static_cast<size_t>(nodes[static_cast<size_t>(ring.order[i])])];
    for (const auto& [nics, chain] : table.chains) {
      ring.nics[i] = nics;
      choose(i + 1);
    }
  };
  do {
    choose(0);
  } while (std::next_permutation(ring.order.begin() + 1, ring.order.end()));
  return best;
}

TEST(NodeRing, DynamicProgrammingEqualsEnumeration) {
  for (uint64_t seed = 0; seed < 30; ++seed) {
    Rng rng(derive_key(8, "nodes", seed));
    const auto tables = random_tables(rng, 2);
    std::vector<int32_t> nodes(2 + rng.below(3));
    for (int32_t& node : nodes) node = static_cast<int32_t>(rng.below(2));
    std::vector<double> rates(5 * 3 * 5 * 3);
    for (double& rate : rates) rate = 1 + 9 * rng.uniform();
    const NodeLinkRate link = [&](NodePort a, NodePort b) {
      return rates[static_cast<size_t>(((a.node * 3 + a.nic) * 5 + b.node) * 3 + b.nic)];
    };
    const double expected = best_node_ring(tables, nodes, link);
    for (const int32_t exact_max : {11, 1}) {
      const auto ring = plan_node_ring(tables, nodes, link, {.exact_nodes_max = exact_max});
      ASSERT_TRUE(ring);
      EXPECT_EQ(ring->exact, exact_max > 1);
      EXPECT_DOUBLE_EQ(ring->rate, rate_of(tables, nodes, link, *ring)) << seed;
      EXPECT_GE(ring->rate, ring->rank_order_rate);
      EXPECT_LE(ring->rate, expected);
      if (ring->exact) {
        EXPECT_DOUBLE_EQ(ring->rate, expected) << seed;
      }
    }
  }
}

// Where links do not matter, the first order is as good as any, and no other one is looked at.
TEST(NodeRing, ManyMachinesAroundAFastNetworkAreNotSearched) {
  Rng rng(derive_key(8, "many nodes"));
  const auto tables = random_tables(rng, 2);
  std::vector<int32_t> nodes(100);
  for (int32_t& node : nodes) node = static_cast<int32_t>(rng.below(2));
  int64_t asked = 0;
  const NodeLinkRate link = [&](NodePort, NodePort) {
    ++asked;
    return 1e9;
  };
  const auto ring = plan_node_ring(tables, nodes, link, {.rounds = 1});
  ASSERT_TRUE(ring);
  EXPECT_DOUBLE_EQ(ring->rate, ring->rank_order_rate);
  EXPECT_LT(asked, 100'000);
}

// Two rails that do not meet: what leaves through NIC 1 must enter through NIC 1.
TEST(NodeRing, ChainsUseOnlyNicsThatExistAndRailsAreKept) {
  const Topology two = *topology::reference_topology("pcie-8gpu-2numa");
  const Topology four = *topology::reference_topology("pcie-8gpu-4numa");
  std::vector<ChainTable> tables;
  for (const Topology* box : {&two, &four}) {
    profile::SimulatedMeter meter(*box);
    profile::Profiler profiler(*box, meter);
    NodeClass node_class{box->name(), box, {}, {box->find("nic0"), box->find("nic1")}};
    for (const char* name : {"gpu0", "gpu1", "gpu4"}) node_class.devices.push_back(box->find(name));
    const auto table = measure_chains(node_class, profiler, {.budget_s = 5});
    ASSERT_TRUE(table) << table.error().message;
    EXPECT_EQ(table->chains.size(), 4u);
    for (const auto& [nics, chain] : table->chains) {
      const auto set = ring_transfers(chain.problem, chain.best.ring);
      EXPECT_EQ(set.front().src, nics.first);
      EXPECT_EQ(set.back().dst, nics.second);
      EXPECT_EQ(set.size(), 4u);
      EXPECT_GT(chain.best.rate, 1);
    }
    tables.push_back(*table);
  }
  const std::vector<int32_t> nodes{0, 1, 0, 1};
  const NodeLinkRate rails = [&](NodePort a, NodePort b) {
    const auto name = [&](NodePort p) {
      return tables[static_cast<size_t>(nodes[static_cast<size_t>(p.node)])]
          .node_class.topology->component(p.nic)
          .name;
    };
    return name(a) == name(b) ? 12.0 : 0.5;
  };
  const auto ring = plan_node_ring(tables, nodes, rails, {});
  ASSERT_TRUE(ring);
  EXPECT_GT(ring->rate, 1);
  EXPECT_DOUBLE_EQ(ring->rate, rate_of(tables, nodes, rails, *ring));
}

TEST(NodeRing, OneDevicePerMachineHasAChainOfItsTwoEnds) {
  const Topology box = *topology::reference_topology("pcie-8gpu-2numa");
  profile::SimulatedMeter meter(box);
  profile::Profiler profiler(box, meter);
  const int32_t nic = box.find("nic0");
  const auto table = measure_chains({"single", &box, {0}, {nic}}, profiler, {});
  ASSERT_TRUE(table) << table.error().message;
  EXPECT_EQ(table->chains.begin()->second.best.ring.size(), 2u);
  EXPECT_FALSE(measure_chains({"none", &box, {0}, {}}, profiler, {}));
  const auto lonely = plan_node_ring({*table}, {0}, [](NodePort, NodePort) { return 1.0; }, {});
  EXPECT_THAT(lonely.error().message, ::testing::HasSubstr("1 machine to plan for"));
}

}  // namespace
}  // namespace jige::plan
