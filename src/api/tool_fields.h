// The fields of chat completions that are about tools: what may be called, and earlier calls.
//
// Threads: pure functions.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "api/field_reader.h"
#include "api/served_model.h"
#include "api/tool_format.h"
#include "grammar/constraint_compiler.h"

namespace jige::api {

// What a request says of tools.
struct ToolRequest {
  Json tools;  // for the template; null: none
  // What its answers are to be parsed as; kNone: they are text alone.
  ToolFormat format = ToolFormat::kNone;
  std::vector<std::string> names;
  bool parallel = true;  // more than one call in an answer
  // What the answer may be, where tool_choice forces a call, or where calls may come beside what
  // response_format asks for.
  std::optional<grammar::ConstraintSource> constraint;
  bool named = false;  // it names the tool; the answer is one call of it
};

// Reads "tools", "tool_choice" and "parallel_tool_calls"; what is wrong is noted in `fields`, and
// so are tools for a model whose template has none.
ToolRequest read_tools(FieldReader& fields, const ServedModel& model);

// The member "tool_calls" of an assistant's message, as templates expect it: arguments are objects.
// null: it has none. `where` is the message's place. Fails with 400.
ApiResult<Json> read_tool_calls(const Json& message, const std::string& where,
                                const ServedModel& model);

// 400: a message of a tool, or a call, for a model whose template would not show it.
ApiError no_tools(std::string param, const ServedModel& model);

}  // namespace jige::api
