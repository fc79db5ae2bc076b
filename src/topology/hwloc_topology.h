// Topologies from hwloc: what `lstopo --of xml` writes, and this machine where the build found
// hwloc.
//
//   <topology version="2.0"><object type="Machine" …>
//     <object type="NUMANode" os_index="0" nodeset="0x00000001" …/>
//     <object type="Bridge" bridge_type="0-1" …>                            a host bridge
//       <object type="Bridge" bridge_type="1-1" pci_busid="0000:16:01.0" …>   a port
//         <object type="PCIDev" pci_busid="0000:17:00.0" pci_type="0302 [10de:2684] …"
//                 pci_link_speed="31.507692"/>
//
// Only NUMA nodes, bridges and PCI devices count; what is below machine_tree.h makes of them is
// what sysfs shows of the same machine. A function belongs to the first NUMA node of the nearest
// object above it that has any. hwloc tells a link's rate without lanes and generation; those stay
// unknown. Where the firmware states memory bandwidth (memattr "Bandwidth"), memories have it.
//
// The library only reads this machine; its XML goes through the same reader as a file, which trusts
// nothing. Threads: pure functions, but for hwloc_description.
#pragma once

#include <string_view>

#include "base/result.h"
#include "topology/description.h"
#include "topology/xml.h"

namespace jige::topology {

// Fails with kCorrupt, naming `where` and the line; kUnsupported where there is no NUMA node.
Result<Description> description_from_hwloc(const XmlElement& topology, std::string_view where);

// This machine. Fails with kUnsupported in a build without hwloc. hwloc's environment variables
// (HWLOC_XMLFILE …) hold.
Result<Description> hwloc_description();

}  // namespace jige::topology
