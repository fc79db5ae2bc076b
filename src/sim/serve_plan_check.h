// Whether a server can be planned for a request at all.
//
// Threads: values.
#pragma once

#include "base/result.h"
#include "sim/serve_planner.h"

namespace jige::sim {

// Fails with kInvalidArgument, naming the field and its value, and with kExhausted where a request
// has no room in the cache alone.
Status check_serve_plan_request(const ServePlanRequest& request);

}  // namespace jige::sim
