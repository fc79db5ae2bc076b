// A ring over the machines of a cluster: in which order they stand, through which NIC the ring
// enters and leaves each, and the chain of devices in between.
//
//   JIGE_TRY(const ChainTable table, measure_chains(node_class, profiler, {}));
//   JIGE_TRY(const NodeRing ring, plan_node_ring(tables, nodes, link_rate, {}));
//
// Machines of one class share one table of chains, which has an entry for each pair of NICs that
// the class really has; classes may differ. The best chain for every pair is found by measuring
// (ring_planner.h). Orders of up to `exact_nodes_max` machines are all considered, by dynamic
// programming over sets of machines; beyond, pairs of machines are exchanged and stretches turned
// while that helps, and the choice of NICs for each order stays exact.
// Threads: one caller.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "plan/ring_planner.h"

namespace jige::plan {

struct NodeClass {
  std::string name;
  const topology::Topology* topology = nullptr;
  std::vector<int32_t> devices;
  std::vector<int32_t> nics;
};

struct Chain {
  RingProblem problem;
  MeasuredRing best;
  double gap = 0;
};

struct ChainTable {
  NodeClass node_class;
  std::map<std::pair<int32_t, int32_t>, Chain> chains;  // by entry and exit NIC
};

// Fails with kInvalidArgument for a class without NICs, and as planning rings does. The budget is
// that of each entry.
Result<ChainTable> measure_chains(const NodeClass& node_class, profile::Profiler& profiler,
                                  const RingPlanOptions& options);

// GB/s from one machine's NIC to another's; machines count from 0.
struct NodePort {
  int32_t node;
  int32_t nic;
};
using NodeLinkRate = std::function<double(NodePort from, NodePort to)>;

struct NodeRingOptions {
  int32_t exact_nodes_max = 11;
  int32_t rounds = 30;  // of local search, each from another order
  uint64_t seed = 1;
};

struct NodeRing {
  std::vector<int32_t> order;                     // machines
  std::vector<std::pair<int32_t, int32_t>> nics;  // entry and exit of each, in that order
  double rate = 0;                                // of the slowest chain or link
  double rank_order_rate = 0;                     // machines in the order given, NICs at their best
  bool exact = false;
};

// `nodes` holds the class of each machine, an index into `tables`. Fails with kInvalidArgument for
// fewer than two machines or an unknown class.
Result<NodeRing> plan_node_ring(const std::vector<ChainTable>& tables,
                                const std::vector<int32_t>& nodes, const NodeLinkRate& link_rate,
                                const NodeRingOptions& options);

}  // namespace jige::plan
