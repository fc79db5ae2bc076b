// Topologies kept as XML: NCCL's (nccl_topology.h) and hwloc's (hwloc_topology.h), told apart by
// their root element.
//
//   JIGE_TRY(const Topology box, load_xml_topology("box.xml"));
//
// Threads: pure functions, but for the file.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"
#include "topology/topology.h"

namespace jige::topology {

// Fails with kCorrupt or kUnsupported, naming `where` and the line.
Result<Description> description_from_xml(std::string_view xml, std::string_view where);
Result<Topology> load_xml_topology(const std::string& path);

}  // namespace jige::topology
