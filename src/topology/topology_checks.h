// What Topology::create and Topology::usage refuse. Each check covers one part of a description and
// relies on those before it.
// Threads: pure functions.
#pragma once

#include <string_view>

#include "base/result.h"
#include "topology/description.h"
#include "topology/topology.h"

namespace jige::topology {

// Names, kinds, numbers and NUMA nodes of the components.
Status check_components(const Description& description, std::string_view where);
// Ends, rates and PCIe widths of the links. REQUIRES: checked components.
Status check_links(const Description& description, std::string_view where);
// Devices without peer access. REQUIRES: checked components.
Status check_peers(const Description& description, std::string_view where);
// Routes that were given. REQUIRES: checked links.
Status check_routes(const Description& description, std::string_view where);
// Paths between all endpoints; devices near the memory they claim.
Status check_reach(const Topology& topology, std::string_view where);
// Whether the transfer can be made at all.
Status check_transfer(const Topology& topology, const Transfer& transfer);

}  // namespace jige::topology
