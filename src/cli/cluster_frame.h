// One picture of a scheduled cluster, from the scheduler's status.json.
//
// Threads: pure functions.
#pragma once

#include <string>

#include "base/json.h"

namespace jige::cli {

// Nodes with their GPUs (# in use, . free, x out of service or others'), then the jobs, those that
// run first. At most so many lines and columns; ends with a line feed. What is missing in `status`
// is shown as nothing.
std::string render_cluster(const Json& status, int rows_max, int columns_max);

}  // namespace jige::cli
