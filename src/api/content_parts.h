// A content of a message that is a list of typed parts, such as {"type": "text", "text": "…"}.
//
// Threads: pure function.
#pragma once

#include <string>

#include "api/field_reader.h"

namespace jige::api {

// The one text that training makes of the parts. Errors name the part in the way of the API, behind
// `where`. REQUIRES: `parts` is a list.
ApiResult<std::string> join_parts(const Json& parts, const std::string& where);

}  // namespace jige::api
