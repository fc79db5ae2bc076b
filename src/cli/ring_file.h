// A ring for collectives out of a plan of `jige plan rings -o PLAN.json` (plan/ring_plan_json.h).
//
// Ranks are numbered as the planner numbered the hosts: by its rank order.
// Threads: pure functions.
#pragma once

#include <string>

#include "comm/ring_plan.h"

namespace jige::cli {

// Whether what stands for a ring on a command line is the name of a file: it ends in ".json".
bool is_ring_file(const std::string& text);

// Fails with kNotFound, kCorrupt or kInvalidArgument naming the file and the field.
Result<comm::Ring> read_ring_file(const std::string& path);

}  // namespace jige::cli
