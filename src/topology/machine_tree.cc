#include "topology/machine_tree.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>

namespace jige::topology {
namespace {

class MachineTree {
 public:
  Description build(const std::vector<NumaNode>& nodes, const std::vector<PciFunction>& functions) {
    for (const NumaNode& node : nodes) add_node(node);
    for (size_t a = 0; a < nodes.size(); ++a) {
      for (size_t b = a + 1; b < nodes.size(); ++b) {
        d_.join({.from = bridges_[nodes[a].number],
                 .to = bridges_[nodes[b].number],
                 .kind = LinkKind::kSocket});
      }
    }
    first_node_ = nodes.front().number;
    for (const PciFunction& function : functions) add(function);
    return std::move(d_);
  }

 private:
  void add_node(const NumaNode& node) {
    const int32_t n = node.number;
    const int32_t bridge =
        d_.add({.name = fmt::format("bridge{}", n), .kind = ComponentKind::kHostBridge, .numa = n});
    const int32_t memory = d_.add({.name = fmt::format("numa{}", n),
                                   .kind = ComponentKind::kMemory,
                                   .numa = n,
                                   .gb_per_s = node.gb_per_s});
    d_.join({.from = bridge, .to = memory, .kind = LinkKind::kMemoryBus});
    bridges_[n] = bridge;
  }

  void add(const PciFunction& function) {
    const int32_t numa = bridges_.contains(function.numa) ? function.numa : first_node_;
    int32_t above = bridges_[numa];
    for (size_t i = 0; i + 1 < function.path.size(); ++i) {
      const bool root_port = i == 0;
      const bool into_switch = i % 2 == 1;
      if (root_port || into_switch) above = port(function.path[i], above, root_port, numa);
    }
    int32_t& number = counts_[function.kind];
    const std::string_view prefix = function.kind == ComponentKind::kDevice ? "gpu" : "nic";
    const int32_t component = d_.add({.name = fmt::format("{}{}", prefix, number),
                                      .kind = function.kind,
                                      .numa = numa,
                                      .index = number,
                                      .address = function.path.back().address});
    ++number;
    join(component, above, function.path.back());
  }

  // The component of a port, made when it is first met.
  int32_t port(const PciPort& port, int32_t above, bool root_port, int32_t numa) {
    if (const auto known = ports_.find(port.address); known != ports_.end()) return known->second;
    std::string name = (root_port ? "port-" : "switch-") + port.address;
    std::ranges::replace(name, ':', '.');
    const int32_t component =
        d_.add({.name = std::move(name),
                .kind = root_port ? ComponentKind::kRootPort : ComponentKind::kSwitch,
                .numa = numa,
                .address = port.address});
    if (root_port) {
      d_.join({.from = component, .to = above});
    } else {
      join(component, above, port);
    }
    ports_[port.address] = component;
    return component;
  }

  void join(int32_t from, int32_t to, const PciPort& port) {
    d_.join({.from = from,
             .to = to,
             .gb_per_s = port.gb_per_s,
             .back_gb_per_s = port.gb_per_s,
             .width = port.width,
             .gt_per_s = port.gt_per_s});
  }

  Description d_;
  int32_t first_node_ = 0;
  std::map<int32_t, int32_t> bridges_;  // by NUMA node
  std::map<std::string, int32_t> ports_;
  std::map<ComponentKind, int32_t> counts_;
};

}  // namespace

void PciPort::negotiated(double lanes, double speed) {
  if (!(lanes >= 1 && lanes <= 32 && speed > 0 && speed <= 256)) return;
  width = static_cast<int32_t>(lanes);
  gt_per_s = speed;
  gb_per_s = pcie_gb_per_s(width, speed);
}

std::optional<ComponentKind> pci_kind(uint32_t type, uint32_t vendor) {
  constexpr uint32_t kNvidia = 0x10de, kAmd = 0x1002;
  const bool gpu_vendor = vendor == kNvidia || vendor == kAmd;
  if (gpu_vendor && (type == 0x0300 || type == 0x0302)) return ComponentKind::kDevice;
  if (type == 0x0200 || type == 0x0207) return ComponentKind::kNic;
  return std::nullopt;
}

Description machine_description(std::vector<NumaNode> nodes, std::vector<PciFunction> functions) {
  std::ranges::sort(nodes, {}, &NumaNode::number);
  std::ranges::sort(functions, {}, [](const PciFunction& f) { return f.path.back().address; });
  return MachineTree().build(nodes, functions);
}

}  // namespace jige::topology
