// Adds to a machine's description what NVML tells of its GPUs.
//
//   JIGE_TRY(Description d, sysfs_description());
//   add_nvml(d, report);
//
// GPUs are found by PCI address and get NVML's index. Their PCIe link gets the lanes it negotiated
// and the highest generation that device and slot have: an idle GPU lowers the generation, and what
// sysfs shows then is not what a transfer gets. NVLinks join GPUs directly, or all through one
// switch "nvswitch", whose own inside is not known (nvlinks.h). The driver's version becomes a fact
// of the environment.
//
// What NVML tells of a GPU that the description lacks is reported as a warning and left out: nobody
// knows where it hangs. Threads: pure functions.
#pragma once

#include <vector>

#include "topology/description.h"
#include "topology/nvml.h"

namespace jige::topology {

// Of a lane, by PCIe generation 1 to 7; 0 for others.
double pcie_gt_per_s(int32_t generation);

void add_nvml(Description& description, const NvmlReport& report);

}  // namespace jige::topology
