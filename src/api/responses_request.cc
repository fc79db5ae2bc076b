#include "api/responses_request.h"

#include "api/responses_input.h"

namespace jige::api {
namespace {

constexpr size_t kInstructionsMax = size_t{1} << 24;

// The nested form of the entry, {"type": "function", "function": {…}}, of a flat one.
Json nested_function(const Json& flat) {
  Json function = flat;
  function.erase("type");
  return {{"type", "function"}, {"function", std::move(function)}};
}

void add_flat_tools(ChatForm& form, FieldReader& fields) {
  const Json* list = fields.find("tools");
  if (!list) return;
  if (!list->is_array()) return form.set("tools", *list, "tools");
  Json tools = Json::array();
  for (const Json& tool : *list) {
    const Json* type = find_field(tool, "type");
    if (type && *type != "function") {
      return fields.refuse(
          unsupported_field(fmt::format("tools[{}].type", tools.size()),
                            fmt::format("tools of type {} are", shown_value(*type))));
    }
    form.name(fmt::format("tools[{}].function", tools.size()),
              fmt::format("tools[{}]", tools.size()));
    tools.push_back(tool.is_object() ? nested_function(tool) : tool);
  }
  form.body()["tools"] = std::move(tools);
}

void add_flat_choice(ChatForm& form, FieldReader& fields) {
  const Json* choice = fields.find("tool_choice");
  if (!choice) return;
  if (!choice->is_object()) return form.set("tool_choice", *choice, "tool_choice");
  form.name("tool_choice.function", "tool_choice");
  const Json* type = find_field(*choice, "type");
  if (type && *type == "allowed_tools") {
    Json allowed = *choice;
    allowed.erase("type");
    if (allowed.contains("tools") && allowed["tools"].is_array()) {
      for (Json& tool : allowed["tools"]) {
        if (tool.is_object()) tool = nested_function(tool);
      }
    }
    form.name("tool_choice.allowed_tools", "tool_choice");
    form.body()["tool_choice"] = {{"type", "allowed_tools"}, {"allowed_tools", std::move(allowed)}};
  } else if (type && *type != "function") {
    fields.refuse(unsupported_field("tool_choice.type",
                                    fmt::format("tools of type {} are", shown_value(*type))));
  } else {
    form.body()["tool_choice"] = nested_function(*choice);
  }
}

// text.format is response_format with the members of json_schema beside its type.
void add_format(ChatForm& form, FieldReader& fields) {
  const Json* text = object_field(fields, "text");
  const Json* format = text ? find_field(*text, "format") : nullptr;
  if (!format) return;
  const Json* type = find_field(*format, "type");
  Json chat = *format;
  if (type && *type == "json_schema") {
    chat = {{"type", "json_schema"}, {"json_schema", *format}};
    form.name("response_format.json_schema", "text.format");
  }
  form.set("response_format", std::move(chat), "text.format");
}

void add_effort(ChatForm& form, FieldReader& fields) {
  const Json* reasoning = object_field(fields, "reasoning");
  const Json* effort = reasoning ? find_field(*reasoning, "effort") : nullptr;
  if (effort) form.set("reasoning_effort", *effort, "reasoning.effort");
}

// What answers may have besides: log-probabilities, and nothing that is here for what agents ask
// for always.
void add_include(ChatForm& form, FieldReader& fields, const RequestLimits& limits) {
  bool logprobs = false;
  const Json* list = fields.find("include");
  if (list && !list->is_array()) {
    return fields.refuse(
        bad_field("include", "include must be a list, found {}", shown_value(*list)));
  }
  for (size_t i = 0; list && i < list->size(); ++i) {
    const Json& entry = (*list)[i];
    if (entry == "message.output_text.logprobs") {
      logprobs = true;
    } else if (entry != "reasoning.encrypted_content") {
      fields.refuse(unsupported_field(fmt::format("include[{}]", i),
                                      fmt::format("{} is", shown_value(entry))));
    }
  }
  const auto top = fields.integer("top_logprobs", {0, limits.top_logprobs_max});
  if (logprobs) {
    form.set("logprobs", true, "include");
    form.set("top_logprobs", top.value_or(0), "top_logprobs");
  } else if (top.value_or(0) > 0) {
    fields.refuse(bad_field("top_logprobs",
                            "top_logprobs is allowed only where include has "
                            "\"message.output_text.logprobs\""));
  }
}

Json field_or(const FieldReader& fields, std::string_view name, Json fallback) {
  const Json* value = fields.find(name);
  return value ? *value : std::move(fallback);
}

// The members of the request that answers repeat.
Json echo_of(const FieldReader& fields, const PreparedRequest& prepared) {
  const ops::SamplingParams& sampling = prepared.engine.front().sampling;
  return {{"instructions", field_or(fields, "instructions", nullptr)},
          {"max_output_tokens", field_or(fields, "max_output_tokens", nullptr)},
          {"metadata", field_or(fields, "metadata", Json::object())},
          {"parallel_tool_calls", prepared.tools.parallel},
          {"temperature", sampling.temperature},
          {"top_p", sampling.top_p},
          {"top_logprobs", prepared.engine.front().top_count},
          {"tools", field_or(fields, "tools", Json::array())},
          {"tool_choice", field_or(fields, "tool_choice", "auto")},
          {"text", field_or(fields, "text", {{"format", {{"type", "text"}}}})},
          {"reasoning", field_or(fields, "reasoning", {{"effort", nullptr}, {"summary", nullptr}})},
          {"truncation", "disabled"},
          {"background", false},
          {"store", false},
          {"previous_response_id", nullptr}};
}

}  // namespace

ApiResult<PreparedRequest> prepare_responses(const Json& body, const ServedModel& model,
                                             const RequestLimits& limits, uint64_t seed) {
  FieldReader fields(body);
  refuse_unserved(fields, Endpoint::kResponses);
  fields.boolean("store");
  object_field(fields, "metadata");
  ChatForm form;
  form.keep(body);
  form.name("messages", "input");
  form.name_inside(".function.arguments", ".arguments");
  form.name_inside(".function.parameters", ".parameters");
  form.name_inside(".function.name", ".name");
  form.name_inside(".function", "");
  form.name_inside(".tool_calls", "");
  form.name_inside(".id", ".call_id");
  form.name_inside(".role", ".type");
  if (const Json* most = fields.find("max_output_tokens")) {
    form.set("max_tokens", *most, "max_output_tokens");
  }
  add_include(form, fields, limits);
  add_flat_tools(form, fields);
  add_flat_choice(form, fields);
  add_format(form, fields);
  add_effort(form, fields);
  if (auto instructions = fields.text("instructions", kInstructionsMax)) {
    form.add_message({{"role", "system"}, {"content", std::move(*instructions)}}, "instructions");
  }
  if (fields.error()) return tl::unexpected(*fields.error());
  if (auto wrong =
          add_input(form, fields.find("input"), static_cast<size_t>(limits.messages_max))) {
    return tl::unexpected(std::move(*wrong));
  }
  auto prepared = form.prepare(model, limits, seed);
  if (prepared) prepared->echo = echo_of(fields, *prepared);
  return prepared;
}

}  // namespace jige::api
