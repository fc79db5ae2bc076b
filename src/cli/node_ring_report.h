// `jige plan rings --nodes`: a ring over machines, each described by a file or a reference;
// machines with the same description share their chains. Threads: one thread.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "cli/link_bench.h"
#include "plan/node_ring.h"

namespace jige::cli {

struct NodeRingRequest {
  std::vector<std::string> nodes;  // of each machine, in rank order: a file or a reference
  bool rails = false;              // NICs reach only those of the same number
  double network_gb_per_s = 0;     // between two NICs; 0: unlimited
};

struct NodeRingReport {
  std::string text;
  Json json;
};

// Measures the chains of every kind of machine (simulated), then chooses order and NICs. Fails as
// reading, measuring and planning do.
Result<NodeRingReport> plan_over_nodes(const NodeRingRequest& request, const LinkFlags& links,
                                       const plan::RingPlanOptions& options);

}  // namespace jige::cli
