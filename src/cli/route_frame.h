// One picture of a router at work, from what it answers to GET /top.
//
// Threads: pure functions.
#pragma once

#include <string>

#include "base/json.h"
#include "cli/top_frame.h"

namespace jige::cli {

// Whether it is a router that has answered.
bool is_router(const Json& top);

// Lines with a line feed each: totals, and a row a server.
std::string render_router(const Json& top, const TopView& view);

}  // namespace jige::cli
