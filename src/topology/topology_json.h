// Topologies as JSON files.
//
//   {"format": "jige.topology", "version": 1, "name": "box", "peer": "all",
//    "components": [{"name": "gpu0", "kind": "device", "numa": 0, "index": 0,
//                    "address": "0000:17:00.0", "gb_per_s": 30, "pull_cost": 1.2,
//                    "copy_engine_gb_per_s": 25,
//                    "penalty": {"flows": 4, "factor": 0.7, "assumption": "…"}}, …],
//    "links": [{"name": "gpu0-port0", "from": "gpu0", "to": "port0", "kind": "pcie",
//               "gb_per_s": 13, "back_gb_per_s": 12, "width": 16, "gt_per_s": 8}, …],
//    "routes": [{"src": "host0", "dst": "host2", "links": ["host0-r0", "trunk1", …]}, …],
//    "no_peer": [{"from": "gpu0", "to": "gpu2"}, …],
//    "environment": {"kernel": "6.1.0", …}}
//
// Kinds: description.h. A rate that is absent is unlimited; "back_gb_per_s" defaults to "gb_per_s"
// and may be "unlimited", a link's "name" defaults to FROM-TO, its "kind" to pcie. Unknown fields
// are refused: a mistyped rate must not pass for an unlimited one.
// Threads: pure functions, but for the file.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

#include "base/json.h"
#include "topology/topology.h"

namespace jige::topology {

Json description_to_json(const Description& description);

// Reads types and names; Topology::create checks the rest. Errors name source, place, field, value.
Result<Description> description_from_json(const Json& json, std::string_view where);

// Both steps on a file.
Result<Topology> load_topology(const std::string& path);

}  // namespace jige::topology
