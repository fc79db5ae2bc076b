// This machine, as one of its sources shows it.
//
//   JIGE_TRY(const Topology machine, machine_topology({.source = "hwloc+nvml"}));
//
// "auto" is sysfs, and NVML where its library is there; a failure of NVML is then a warning. Named
// sources must work. Threads: reads files and loads libraries; one caller at a time.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "topology/topology.h"

namespace jige::topology {

struct MachineOptions {
  std::string source = "auto";
  std::string sysfs = "/sys";
  std::string nvml = "libnvidia-ml.so.1";
};

// "auto", "sysfs", "hwloc", "sysfs+nvml", "hwloc+nvml".
const std::vector<std::string>& machine_sources();

// Fails with kInvalidArgument on another source, and as the sources do.
Result<Topology> machine_topology(const MachineOptions& options = {});

}  // namespace jige::topology
