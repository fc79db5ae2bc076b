#include "cli/topology_flags.h"

#include <fmt/ranges.h>

#include "cli/flags.h"
#include "topology/machine_topology.h"
#include "topology/reference_topologies.h"
#include "topology/slurm_topology.h"
#include "topology/topology_json.h"
#include "topology/xml_topology.h"

namespace jige::cli {

void TopologyFlags::declare(Flags& flags, std::string_view file_flag) {
  flags.section("Machine or network");
  flags.text(
      fmt::format("{} FILE", file_flag), file,
      "a description as JSON, a topology of NCCL or hwloc (lstopo --of xml) as .xml, or Slurm's "
      "topology.conf; without one, this machine");
  flags.text("--reference NAME", reference,
             fmt::format("a machine or network that Jige knows: {}",
                         fmt::join(topology::reference_topology_names(), ", ")));
  flags.choice("--source NAME", source, topology::machine_sources(),
               "what this machine is read from; auto: sysfs, and NVML where there is a driver");
}

Result<topology::Topology> TopologyFlags::load() const {
  if (!file.empty() && !reference.empty()) {
    return fail(Code::kInvalidArgument, "give a file or --reference, not both");
  }
  if (given() && source != "auto") {
    return fail(Code::kInvalidArgument,
                "--source is of this machine; a file or --reference is not");
  }
  if (file.ends_with(".xml")) return topology::load_xml_topology(file);
  if (file.ends_with(".conf")) return topology::load_slurm_topology(file);
  if (!file.empty()) return topology::load_topology(file);
  if (!reference.empty()) return topology::reference_topology(reference);
  return topology::machine_topology({.source = source});
}

}  // namespace jige::cli
