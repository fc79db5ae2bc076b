#include "api/messages_request.h"

#include "api/messages_input.h"

namespace jige::api {
namespace {

void add_custom_tools(ChatForm& form, FieldReader& fields) {
  const Json* list = fields.find("tools");
  if (!list) return;
  if (!list->is_array()) return form.set("tools", *list, "tools");
  Json tools = Json::array();
  for (const Json& tool : *list) {
    const std::string where = fmt::format("tools[{}]", tools.size());
    const Json* type = find_field(tool, "type");
    if (type && *type != "custom") {
      return fields.refuse(unsupported_field(
          where + ".type", fmt::format("tools of type {} are", shown_value(*type))));
    }
    form.name(where + ".function", where);
    form.name(where + ".function.parameters", where + ".input_schema");
    if (!tool.is_object()) {
      tools.push_back(tool);
      continue;
    }
    Json function = Json::object();
    for (const auto& [own, chat] : {std::pair("name", "name"),
                                    {"description", "description"},
                                    {"input_schema", "parameters"},
                                    {"strict", "strict"}}) {
      if (const Json* value = find_field(tool, own)) function[chat] = *value;
    }
    tools.push_back({{"type", "function"}, {"function", std::move(function)}});
  }
  form.body()["tools"] = std::move(tools);
}

void add_message_choice(ChatForm& form, FieldReader& fields) {
  const Json* choice = object_field(fields, "tool_choice");
  if (!choice) return;
  FieldReader inner(*choice);
  const bool one = inner.boolean("disable_parallel_tool_use").value_or(false);
  const std::string type = inner.text("type", 64).value_or("");
  if (inner.error()) {
    return fields.refuse(
        bad_field("tool_choice." + inner.error()->param, "tool_choice.{}", inner.error()->message));
  }
  form.name("tool_choice.function", "tool_choice");
  if (one) form.set("parallel_tool_calls", false, "tool_choice.disable_parallel_tool_use");
  if (type == "tool") {
    Json function = Json::object();
    if (const Json* name = inner.find("name")) function["name"] = *name;
    form.body()["tool_choice"] = {{"type", "function"}, {"function", std::move(function)}};
  } else if (type == "auto" || type == "any" || type == "none") {
    form.body()["tool_choice"] = type == "any" ? "required" : type;
  } else {
    fields.refuse(bad_field("tool_choice.type",
                            "tool_choice.type must be auto, any, tool or none, found \"{}\"",
                            type));
  }
}

// Whether the model is to think, as the template may ask, and whether that is shown. It is not
// where nobody asks.
void add_thinking(ChatForm& form, FieldReader& fields) {
  const Json* thinking = object_field(fields, "thinking");
  const Json* type = thinking ? find_field(*thinking, "type") : nullptr;
  const bool thinks = type && (*type == "enabled" || *type == "adaptive");
  if (thinking && !thinks && !(type && *type == "disabled")) {
    return fields.refuse(bad_field("thinking.type",
                                   "thinking.type must be enabled, adaptive or disabled, found {}",
                                   type ? shown_value(*type) : "nothing"));
  }
  Json& body = form.body();
  const Json* display = thinks ? find_field(*thinking, "display") : nullptr;
  if (!thinks || (display && *display == "omitted")) body["include_reasoning"] = false;
  Json& variables = body["chat_template_kwargs"];
  if (variables.is_null()) variables = Json::object();
  if (!variables.is_object()) return;  // refused where it is read
  for (const char* name : {"enable_thinking", "thinking"}) {
    if (!variables.contains(name)) variables[name] = thinks;
  }
}

void add_output(ChatForm& form, FieldReader& fields) {
  const Json* output = object_field(fields, "output_config");
  if (!output) return;
  if (const Json* effort = find_field(*output, "effort")) {
    form.set("reasoning_effort", *effort, "output_config.effort");
  }
  const Json* format = find_field(*output, "format");
  if (!format) return;
  Json chat = *format;
  const Json* type = find_field(*format, "type");
  if (type && *type == "json_schema") {
    chat = {{"type", "json_schema"}, {"json_schema", *format}};
    form.name("response_format.json_schema", "output_config.format");
  }
  form.set("response_format", std::move(chat), "output_config.format");
}

// The whole request but for its length.
ApiResult<ChatForm> read_form(FieldReader& fields, const RequestLimits& limits) {
  refuse_unserved(fields, Endpoint::kMessages);
  ChatForm form;
  form.keep(fields.object());
  form.name_inside(".function.arguments", ".input");
  form.name_inside(".function.parameters", ".input_schema");
  form.name_inside(".function.name", ".name");
  form.name_inside(".function", "");
  form.name_inside(".tool_calls", ".content");
  form.name_inside(".role", ".type");
  add_custom_tools(form, fields);
  add_message_choice(form, fields);
  add_thinking(form, fields);
  add_output(form, fields);
  if (const Json* stops = fields.find("stop_sequences")) {
    form.set("stop", *stops, "stop_sequences");
  }
  const Json* metadata = object_field(fields, "metadata");
  const Json* user = metadata ? find_field(*metadata, "user_id") : nullptr;
  if (user) form.set("user", *user, "metadata.user_id");
  if (fields.error()) return tl::unexpected(*fields.error());
  auto wrong = add_conversation(form, fields.object(), static_cast<size_t>(limits.messages_max));
  if (wrong) return tl::unexpected(std::move(*wrong));
  return form;
}

}  // namespace

ApiResult<PreparedRequest> prepare_messages(const Json& body, const ServedModel& model,
                                            const RequestLimits& limits, uint64_t seed) {
  FieldReader fields(body);
  const Json* most = fields.find("max_tokens");
  if (!most) fields.refuse(bad_field("max_tokens", "max_tokens is missing"));
  auto form = read_form(fields, limits);
  if (!form) return tl::unexpected(std::move(form.error()));
  form->set("max_tokens", *most, "max_tokens");
  return form->prepare(model, limits, seed);
}

ApiResult<Json> count_message_tokens(const Json& body, const ServedModel& model,
                                     const RequestLimits& limits) {
  FieldReader fields(body);
  const auto form = read_form(fields, limits);
  if (!form) return tl::unexpected(form.error());
  const auto count = form->count_tokens(model, limits);
  if (!count) return tl::unexpected(count.error());
  return Json{{"input_tokens", *count}};
}

}  // namespace jige::api
