#include "api/forced_calls.h"

#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

#include "grammar/pieces.h"

namespace jige::api {
namespace {

using grammar::either_piece;
using grammar::json_piece;
using grammar::repeated_piece;
using grammar::row_piece;
using grammar::special_piece;
using grammar::text_piece;

Json mark_piece(const text::Tokenizer& tokenizer, std::string_view mark) {
  const auto id = tokenizer.token_to_id(mark);
  return id && tokenizer.is_special(*id) ? special_piece(mark) : text_piece(mark);
}

// {"name": "f", "arguments": {…}} of any of the tools.
Json object_piece(const std::vector<CallableTool>& tools, std::string_view arguments) {
  std::vector<Json> calls;
  for (const CallableTool& tool : tools) {
    const std::string head = fmt::format(R"({{"name": "{}", "{}": )", tool.name, arguments);
    calls.push_back(
        row_piece({text_piece(head), json_piece(tool.schema, tool.place), text_piece("}")}));
  }
  return either_piece(std::move(calls));
}

Json hermes_call(const text::Tokenizer& tokenizer, const std::vector<CallableTool>& tools) {
  return row_piece({mark_piece(tokenizer, "<tool_call>"), text_piece("\n"),
                    object_piece(tools, "arguments"), text_piece("\n"),
                    mark_piece(tokenizer, "</tool_call>")});
}

// Nine letters and digits, as the templates of the family want them.
Json call_id_piece() {
  std::vector<Json> letters;
  for (const char letter : kCallIdLetters) letters.push_back(text_piece({&letter, 1}));
  return row_piece(std::vector<Json>(kCallIdLength, either_piece(std::move(letters))));
}

Json marked_mistral_call(const text::Tokenizer& tokenizer, const std::vector<CallableTool>& tools,
                         bool with_id) {
  std::vector<Json> calls;
  for (const CallableTool& tool : tools) {
    std::vector<Json> call = {text_piece(tool.name)};
    if (with_id) {
      call.push_back(mark_piece(tokenizer, "[CALL_ID]"));
      call.push_back(call_id_piece());
    }
    call.push_back(mark_piece(tokenizer, "[ARGS]"));
    call.push_back(json_piece(tool.schema, tool.place));
    calls.push_back(row_piece(std::move(call)));
  }
  return row_piece({mark_piece(tokenizer, "[TOOL_CALLS]"), either_piece(std::move(calls))});
}

Json some(Json call, bool several, std::string_view between) {
  return several ? repeated_piece(std::move(call), text_piece(between)) : call;
}

Json mistral_calls(const ServedModel& model, const std::vector<CallableTool>& tools, bool several) {
  const text::Tokenizer& tokenizer = model.tokenizer;
  const auto has = [&](std::string_view mark) {
    return model.chat_template && model.chat_template->source().find(mark) != std::string::npos;
  };
  if (has("[ARGS]")) {
    return some(marked_mistral_call(tokenizer, tools, has("[CALL_ID]")), several, "");
  }
  return row_piece({mark_piece(tokenizer, "[TOOL_CALLS]"),
                    either_piece({text_piece("["), text_piece(" [")}),
                    some(object_piece(tools, "arguments"), several, ", "), text_piece("]")});
}

Json harmony_call(const text::Tokenizer& tokenizer, const std::vector<CallableTool>& tools) {
  std::vector<Json> calls;
  for (const CallableTool& tool : tools) {
    const std::string receiver = fmt::format("commentary to=functions.{} ", tool.name);
    calls.push_back(
        row_piece({text_piece(receiver), mark_piece(tokenizer, "<|constrain|>"), text_piece("json"),
                   mark_piece(tokenizer, "<|message|>"), json_piece(tool.schema, tool.place)}));
  }
  return row_piece({mark_piece(tokenizer, "<|channel|>"), either_piece(std::move(calls))});
}

Json calls_piece(const ServedModel& model, const std::vector<CallableTool>& tools, bool several) {
  switch (model.tool_format) {
    case ToolFormat::kNone:
      return {};
    case ToolFormat::kHermes:
      return some(hermes_call(model.tokenizer, tools), several, "\n");
    case ToolFormat::kMistral:
      return mistral_calls(model, tools, several);
    case ToolFormat::kLlama:
      return some(object_piece(tools, "parameters"), several, "; ");
    case ToolFormat::kHarmony:
      return harmony_call(model.tokenizer, tools);
  }
  return {};
}

}  // namespace

grammar::ConstraintSource forced_calls(const ServedModel& model,
                                       const std::vector<CallableTool>& tools, bool several) {
  return {.kind = grammar::ConstraintSource::Kind::kPieces,
          .value = calls_piece(model, tools, several)};
}

grammar::ConstraintSource calls_or_json(const ServedModel& model,
                                        const std::vector<CallableTool>& tools, bool several,
                                        const Json& schema) {
  return {.kind = grammar::ConstraintSource::Kind::kPieces,
          .value = either_piece({calls_piece(model, tools, several),
                                 json_piece(schema, "response_format's schema")})};
}

}  // namespace jige::api
