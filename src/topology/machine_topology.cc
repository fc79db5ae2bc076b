#include "topology/machine_topology.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "base/log.h"
#include "topology/access_control.h"
#include "topology/hwloc_topology.h"
#include "topology/nvml_topology.h"
#include "topology/sysfs_topology.h"

namespace jige::topology {

const std::vector<std::string>& machine_sources() {
  static const std::vector<std::string> sources = {"auto", "sysfs", "hwloc", "sysfs+nvml",
                                                   "hwloc+nvml"};
  return sources;
}

Result<Topology> machine_topology(const MachineOptions& options) {
  const std::string& source = options.source;
  if (std::ranges::find(machine_sources(), source) == machine_sources().end()) {
    return fail(Code::kInvalidArgument, "there is no source \"{}\"; there are {}", source,
                fmt::join(machine_sources(), ", "));
  }
  const bool hwloc = source.starts_with("hwloc");
  JIGE_TRY(Description d, hwloc ? hwloc_description() : sysfs_description(options.sysfs));
  add_access_control(d, options.sysfs);
  const bool automatic = source == "auto";
  if (automatic || source.ends_with("+nvml")) {
    auto report = read_nvml(options.nvml);
    if (report) {
      add_nvml(d, *report);
    } else if (!automatic) {
      return tl::unexpected<Error>(std::move(report.error()));
    } else if (report.error().code != Code::kNotFound) {
      log_warn("{}; GPUs are shown as sysfs has them", report.error().message);
    }
  }
  return Topology::create(std::move(d), hwloc ? "hwloc" : options.sysfs);
}

}  // namespace jige::topology
