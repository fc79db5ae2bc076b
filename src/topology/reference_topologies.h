// Machines and networks to plan for where none is at hand: PCIe boxes whose GPUs hang on the CPU,
// boxes with PCIe switches, and hosts behind routers. Rates are assumptions of the order that such
// machines have; nothing here was measured.
//
//   JIGE_TRY(const Topology box, reference_topology("pcie-8gpu-2numa"));
//
// Threads: pure functions.
#pragma once

#include <string_view>
#include <vector>

#include "base/result.h"
#include "topology/topology.h"

namespace jige::topology {

// GPUs on root ports of NUMA nodes. A bridge carries what passes it, both directions together.
struct PcieBox {
  std::vector<int32_t> numa_of_device = {0, 0, 1, 1};
  int32_t numa_count = 2;
  PeerAccess peer = PeerAccess::kAll;
  double link_gb_per_s = 12.5;  // PCIe 3.0 x16, as achieved
  double bridge_gb_per_s = 40;
  double memory_gb_per_s = 45;     // of a NUMA node, for traffic of devices
  double socket_gb_per_s = 18;     // each way
  double pull_cost = 1.2;          // of the bridge: reads carry requests and completions
  bool socket_ring = false;        // NUMA nodes in a ring; otherwise each with each
  int32_t devices_per_switch = 0;  // 0: every device on a root port of its own
  int32_t nics = 0;                // on NUMA nodes 0, 1, …, in turn
  double nic_gb_per_s = 12;
};
Description make_pcie_box(const PcieBox& box);

// Two routers, hosts in turn behind either, joined by `trunks` parallel links; a host's traffic
// across takes the trunk of its rank.
struct TrunkNetwork {
  int32_t hosts = 4;
  int32_t trunks = 1;
  double link_gb_per_s = 0.125;
  double trunk_gb_per_s = 0.125;
  bool alternate = true;  // hosts 0, 2, … behind router 0; otherwise the first half
};
Description make_trunk_network(const TrunkNetwork& network);

// The names that reference_topology knows.
std::vector<std::string_view> reference_topology_names();
// Fails with kNotFound, listing the names.
Result<Topology> reference_topology(std::string_view name);

}  // namespace jige::topology
