// The description of one machine out of what a source tells of it: NUMA nodes with their memory,
// and PCIe functions with the ports on the way to them. Every source of a machine ends here, so
// that the same machine looks the same through all of them.
//
//   const Description d = machine_description(
//       {{.number = 0}, {.number = 1}},
//       {{ComponentKind::kDevice, 0, {root_port, switch_up, switch_down, function}}});
//
// A node becomes a host bridge with a memory; every two bridges are joined by a socket link. Ports
// behind the root port come in pairs, into a switch and out of it. Functions are numbered by kind
// in the order of their addresses, as NVML and NCCL do. What is not known is unlimited.
// Threads: pure functions.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "topology/description.h"

namespace jige::topology {

struct NumaNode {
  int32_t number = 0;
  double gb_per_s = kUnlimited;  // of its memory
};

// A port or function, with what the link from it upwards carries.
struct PciPort {
  std::string address;  // "0000:17:00.0"
  int32_t width = 0;    // lanes; 0: not known
  double gt_per_s = 0;  // of a lane; 0: not known
  double gb_per_s = kUnlimited;

  // Sets width, speed and rate, where both are possible values.
  void negotiated(double lanes, double speed);
};

struct PciFunction {
  ComponentKind kind = ComponentKind::kDevice;
  int32_t numa = -1;          // of no node that is there: counts as on the first
  std::vector<PciPort> path;  // from the root port to the function itself; never empty
};

// What a function of this PCI class (0x0302: class and subclass) and vendor is: a GPU, a network
// adapter, or nothing that counts here.
std::optional<ComponentKind> pci_kind(uint32_t type, uint32_t vendor);

// REQUIRES: at least one node.
Description machine_description(std::vector<NumaNode> nodes, std::vector<PciFunction> functions);

}  // namespace jige::topology
