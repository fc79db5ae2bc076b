// A topology as a tree for the terminal: bridges and routers at the root, what hangs on them below,
// each with the rate of the link to it; links that close cycles stand beneath.
//
//   bridge0  host bridge, numa 0, 40 GB/s
//   ├─ numa0  memory, numa 0, 45 GB/s
//   └─ port0  root port
//      └─ gpu0  device, numa 0, link 12.5 GB/s
//   other links
//     bridge0-bridge1  socket, 18 GB/s
//
// Threads: pure functions.
#pragma once

#include <string>
#include <vector>

#include "topology/topology.h"

namespace jige::topology {

// A spanning forest: the link that leads to a component, -1 at a root, and the depth. Roots are the
// host bridges, otherwise the routers, otherwise the first component.
struct Forest {
  std::vector<int32_t> parent_link;
  std::vector<int32_t> depth;
  std::vector<int32_t> order;  // preorder
};
Forest spanning_forest(const Topology& topology);

// "host bridge, numa 0, 40 GB/s" without the name.
std::string describe(const Component& component);
// "12.5 GB/s", "12.5 / 10 GB/s", "unlimited".
std::string describe_rate(const Link& link);

std::string topology_text(const Topology& topology);

}  // namespace jige::topology
