// What an answer may be where a call is forced: calls of the tools alone, in the form that the
// model's template writes them in, whose arguments fit the tools' schemas.
//
//   hermes    <tool_call>, a line feed, {"name": "f", "arguments": {…}}, a line feed, </tool_call>
//   mistral   [TOOL_CALLS]f[ARGS]{…} where the template has [ARGS], with [CALL_ID] and an id of
//   nine
//             letters and digits before it where it has that too, else
//             [TOOL_CALLS] [{"name": "f", "arguments": {…}}], with the space or without it
//   llama     {"name": "f", "parameters": {…}}
//   harmony   <|channel|>commentary to=functions.f <|constrain|>json<|message|>{…}, one alone, as
//             its templates show one a message
//
// A mark that is a special token of the tokenizer is that token, others are spelled. ToolCallParser
// reads back every such answer that is not cut off. Threads: pure functions.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "api/served_model.h"
#include "grammar/constraint_compiler.h"

namespace jige::api {

struct CallableTool {
  std::string name;
  std::string place;  // of its schema in the request, for errors
  Json schema;        // of objects alone (arguments_schema.h)
};

// One call of one of the tools, or with `several` also more. REQUIRES: the model has a tool format;
// at least one tool.
grammar::ConstraintSource forced_calls(const ServedModel& model,
                                       const std::vector<CallableTool>& tools, bool several);

// The same, or JSON that fits the schema: where tools may be called and response_format says what
// all other answers are. REQUIRES: as above; the format is not harmony, whose text has a header.
grammar::ConstraintSource calls_or_json(const ServedModel& model,
                                        const std::vector<CallableTool>& tools, bool several,
                                        const Json& schema);

}  // namespace jige::api
