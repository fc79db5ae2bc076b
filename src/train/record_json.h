// A line of JSONL as the object that training reads: checked, and brought to the forms of
// document_encoder.h where it has one that others write.
//
//   {"conversations": [{"from": "human", "value": …}, {"from": "gpt", "value": …}…], "system": …}
//
// is {"messages": [{"role", "content"}…]}, with what "system" says in front. Writers are human or
// user, gpt or assistant, and system.
// Threads: pure functions.
#pragma once

#include <string>
#include <string_view>

#include "base/json.h"
#include "base/result.h"

namespace jige::train {

// Fails with kCorrupt on bad JSON, and with kInvalidArgument on what is no object or a conversation
// of another shape; the message begins with `where` and says how such a file is rewritten.
Result<Json> read_json_record(std::string_view line, const std::string& where);

// That a record has no field that training reads, with those that it has. kInvalidArgument.
tl::unexpected<Error> no_known_field(const Json& object, const std::string& text_field,
                                     const std::string& where);

// Beside a field that is missing: the fields that a record has, a few of them.
std::string fields_text(const Json& object);

}  // namespace jige::train
