// Reads the network that Slurm knows, its topology.conf: switches, what hangs on them, and nothing
// about rates.
//
//   SwitchName=leaf0 Nodes=node[0-3]
//   SwitchName=leaf1 Nodes=node[4-7],login LinkSpeed=100
//   SwitchName=core  Switches=leaf[0-1]
//
// Nodes become hosts, in the order of the file, switches routers, and links trunks between
// switches. LinkSpeed has no unit in Slurm and is passed over: rates are unlimited, for
// measurements to find. Keywords count in any case, '#' begins a comment, a backslash at the end of
// a line joins the next one to it.
// Threads: pure functions, but for the file.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "topology/topology.h"

namespace jige::topology {

// "a[0-2,07],b" as the names a0 a1 a2 a07 b. Fails with kInvalidArgument, naming the text.
Result<std::vector<std::string>> expand_host_list(std::string_view text, std::string_view where);

// Fails with kInvalidArgument for an unknown keyword, one given twice in a line, or a list that
// cannot be read; kCorrupt for a switch that is given twice, on two switches, below itself or
// missing, a node on two switches, and a file without nodes.
Result<Description> parse_slurm_topology(std::string_view text, std::string_view where);

Result<Topology> load_slurm_topology(const std::string& path);

}  // namespace jige::topology
