// This machine as the kernel's sysfs shows it: NUMA nodes, PCIe ports, switches, GPUs and NICs.
//
//   JIGE_TRY(const Topology machine, sysfs_topology());
//
// Rates are those of the links' negotiated width and speed: upper bounds, not measurements. What
// sysfs does not tell (host bridges, memory, sockets) is unlimited until a description says
// otherwise, and peer access is assumed. GPUs count in the order of their addresses, as NVML does.
// Threads: reads files.
#pragma once

#include <string>

#include "base/result.h"
#include "topology/topology.h"

namespace jige::topology {

// `root` is "/sys", or a copy of it. Fails with kUnsupported where there are no NUMA nodes below
// it.
Result<Description> sysfs_description(const std::string& root = "/sys");
Result<Topology> sysfs_topology(const std::string& root = "/sys");

}  // namespace jige::topology
