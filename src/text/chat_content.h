// The content of a chat message as one text.
//
// A content is a text or a list of parts, {"type": "text", "text": …} each, whose texts stand one
// right behind the other: what a template writes that loops over the parts.
// Threads: pure function.
#pragma once

#include <string>

#include "base/json.h"
#include "base/result.h"

namespace jige::text {

// Fails with kInvalidArgument on anything else, kUnsupported on parts of other types, naming the
// part and its type; `where` begins the message.
Result<std::string> chat_content_text(const Json& content, const std::string& where);

}  // namespace jige::text
