// A text that must be one JSON object, each of whose names is given once.
//
// Threads: free functions, no shared state.
#pragma once

#include <string_view>

#include "base/json.h"
#include "base/result.h"

namespace jige {

// Fails as parse_json does, and with kCorrupt on a name given twice in one object, at any depth,
// and on a top that is no object.
Result<Json> parse_json_object(std::string_view text, std::string_view where);

}  // namespace jige
