#include "topology/reference_topologies.h"

#include <fmt/format.h>
#include <algorithm>

namespace jige::topology {
namespace {

// The NUMA nodes of a box: bridge and memory of each, and the links between them.
std::vector<int32_t> add_sockets(Description& d, const PcieBox& box) {
  std::vector<int32_t> bridges;
  for (int32_t n = 0; n < box.numa_count; ++n) {
    const int32_t bridge = d.add({.name = fmt::format("bridge{}", n),
                                  .kind = ComponentKind::kHostBridge,
                                  .numa = n,
                                  .gb_per_s = box.bridge_gb_per_s,
                                  .pull_cost = box.pull_cost});
    const int32_t memory = d.add({.name = fmt::format("numa{}", n),
                                  .kind = ComponentKind::kMemory,
                                  .numa = n,
                                  .gb_per_s = box.memory_gb_per_s});
    d.join({.from = bridge, .to = memory, .kind = LinkKind::kMemoryBus});
    bridges.push_back(bridge);
  }
  for (int32_t a = 0; a < box.numa_count; ++a) {
    for (int32_t b = a + 1; b < box.numa_count; ++b) {
      if (box.socket_ring && b != a + 1 && (a != 0 || b != box.numa_count - 1)) continue;
      d.join({.from = bridges[static_cast<size_t>(a)],
              .to = bridges[static_cast<size_t>(b)],
              .kind = LinkKind::kSocket,
              .gb_per_s = box.socket_gb_per_s,
              .back_gb_per_s = box.socket_gb_per_s});
    }
  }
  return bridges;
}

}  // namespace

Description make_pcie_box(const PcieBox& box) {
  Description d;
  d.peer = box.peer;
  for (size_t i = 0; i < box.numa_of_device.size(); ++i) {
    d.add({.name = fmt::format("gpu{}", i), .numa = box.numa_of_device[i]});
  }
  const std::vector<int32_t> bridges = add_sockets(d, box);
  const auto link = [&](int32_t from, int32_t to, double rate) {
    d.join({.from = from, .to = to, .gb_per_s = rate, .back_gb_per_s = rate});
  };
  std::vector<int32_t> below(bridges.size(), 0);  // devices so far on a NUMA node
  std::vector<int32_t> last_switch(bridges.size(), -1);
  for (size_t i = 0; i < box.numa_of_device.size(); ++i) {
    const auto numa = static_cast<size_t>(box.numa_of_device[i]);
    const auto device = static_cast<int32_t>(i);
    if (box.devices_per_switch == 0) {
      const int32_t port = d.add({.name = fmt::format("port{}", i),
                                  .kind = ComponentKind::kRootPort,
                                  .numa = box.numa_of_device[i]});
      link(device, port, box.link_gb_per_s);
      d.join({.from = port, .to = bridges[numa]});
      continue;
    }
    if (below[numa]++ % box.devices_per_switch == 0) {
      last_switch[numa] = d.add({.name = fmt::format("switch{}.{}", numa, below[numa] - 1),
                                 .kind = ComponentKind::kSwitch,
                                 .numa = box.numa_of_device[i]});
      link(last_switch[numa], bridges[numa], box.link_gb_per_s);
    }
    link(device, last_switch[numa], box.link_gb_per_s);
  }
  for (int32_t i = 0; i < box.nics; ++i) {
    const int32_t numa = i % box.numa_count;
    const int32_t nic = d.add(
        {.name = fmt::format("nic{}", i), .kind = ComponentKind::kNic, .numa = numa, .index = i});
    link(nic, bridges[static_cast<size_t>(numa)], box.nic_gb_per_s);
  }
  return d;
}

Description make_trunk_network(const TrunkNetwork& network) {
  Description d;
  for (int32_t i = 0; i < network.hosts; ++i) {
    d.add({.name = fmt::format("host{}", i), .kind = ComponentKind::kHost});
  }
  const int32_t routers[2] = {d.add({.name = "router0", .kind = ComponentKind::kRouter}),
                              d.add({.name = "router1", .kind = ComponentKind::kRouter})};
  std::vector<int32_t> uplink, side;
  for (int32_t i = 0; i < network.hosts; ++i) {
    side.push_back(network.alternate ? i % 2 : (2 * i >= network.hosts ? 1 : 0));
    uplink.push_back(d.join({.from = i,
                             .to = routers[side.back()],
                             .kind = LinkKind::kNetwork,
                             .gb_per_s = network.link_gb_per_s,
                             .back_gb_per_s = network.link_gb_per_s}));
  }
  std::vector<int32_t> trunks;
  for (int32_t t = 0; t < network.trunks; ++t) {
    trunks.push_back(d.join({.name = fmt::format("trunk{}", t),
                             .from = routers[0],
                             .to = routers[1],
                             .kind = LinkKind::kTrunk,
                             .gb_per_s = network.trunk_gb_per_s,
                             .back_gb_per_s = network.trunk_gb_per_s}));
  }
  for (int32_t a = 0; network.trunks > 1 && a < network.hosts; ++a) {
    for (int32_t b = 0; b < network.hosts; ++b) {
      if (side[static_cast<size_t>(a)] == side[static_cast<size_t>(b)]) continue;
      const int32_t trunk = trunks[static_cast<size_t>((a / 2) % network.trunks)];
      d.routes.push_back(
          {a, b, {uplink[static_cast<size_t>(a)], trunk, uplink[static_cast<size_t>(b)]}});
    }
  }
  return d;
}

namespace {

struct Reference {
  std::string_view name;
  Description (*make)();
};

// "interleaved" boxes number their GPUs across NUMA nodes in turn, as buses often do.
constexpr Reference kReferences[] = {
    {"pcie-4gpu-2numa", [] { return make_pcie_box({}); }},
    {"pcie-4gpu-2numa-interleaved",
     [] {
       return make_pcie_box({.numa_of_device = {0, 1, 0, 1}});
     }},
    {"pcie-4gpu-2numa-nopeer", [] { return make_pcie_box({.peer = PeerAccess::kNone}); }},
    // Placements of published clusters: GPUs on nodes 3, 1, 1, 0, and on 0, 0, 2, 2.
    {"pcie-4gpu-4numa-3110",
     [] {
       return make_pcie_box(
           {.numa_of_device = {3, 1, 1, 0}, .numa_count = 4, .bridge_gb_per_s = 25});
     }},
    {"pcie-4gpu-4numa-0022",
     [] {
       return make_pcie_box(
           {.numa_of_device = {0, 0, 2, 2}, .numa_count = 4, .bridge_gb_per_s = 25});
     }},
    {"pcie-8gpu-2numa",
     [] {
       return make_pcie_box({.numa_of_device = {0, 0, 0, 0, 1, 1, 1, 1}, .nics = 2});
     }},
    {"pcie-8gpu-2numa-interleaved",
     [] {
       return make_pcie_box({.numa_of_device = {0, 1, 0, 1, 0, 1, 0, 1}, .nics = 2});
     }},
    {"pcie-8gpu-4numa",
     [] {
       return make_pcie_box({.numa_of_device = {0, 0, 1, 1, 2, 2, 3, 3},
                             .numa_count = 4,
                             .bridge_gb_per_s = 25,
                             .nics = 4});
     }},
    {"pcie-8gpu-4numa-interleaved",
     [] {
       return make_pcie_box({.numa_of_device = {0, 1, 2, 3, 0, 1, 2, 3},
                             .numa_count = 4,
                             .bridge_gb_per_s = 25,
                             .nics = 4});
     }},
    {"pcie-8gpu-4numa-nopeer",
     [] {
       return make_pcie_box({.numa_of_device = {0, 0, 1, 1, 2, 2, 3, 3},
                             .numa_count = 4,
                             .peer = PeerAccess::kNone,
                             .bridge_gb_per_s = 25,
                             .nics = 4});
     }},
    {"switch-8gpu-2numa",
     [] {
       return make_pcie_box({.numa_of_device = {0, 0, 0, 0, 1, 1, 1, 1},
                             .peer = PeerAccess::kSwitch,
                             .devices_per_switch = 2});
     }},
    {"trunk-4host", [] { return make_trunk_network({}); }},
    {"dual-trunk-8host", [] { return make_trunk_network({.hosts = 8, .trunks = 2}); }},
    // Links twice as fast as a trunk: one ring fills one trunk each way, two rings both.
    {"two-trunk-4host",
     [] { return make_trunk_network({.hosts = 4, .trunks = 2, .link_gb_per_s = 0.25}); }},
};

}  // namespace

std::vector<std::string_view> reference_topology_names() {
  std::vector<std::string_view> names;
  for (const Reference& reference : kReferences) names.push_back(reference.name);
  return names;
}

Result<Topology> reference_topology(std::string_view name) {
  for (const Reference& reference : kReferences) {
    if (reference.name != name) continue;
    Description description = reference.make();
    description.name = name;
    return Topology::create(std::move(description), name);
  }
  return fail(Code::kNotFound, "no reference topology \"{}\"; there are {}", name,
              fmt::join(reference_topology_names(), ", "));
}

}  // namespace jige::topology
