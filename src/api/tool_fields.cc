#include "api/tool_fields.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "api/arguments_schema.h"
#include "api/constraint_fields.h"
#include "api/forced_calls.h"

namespace jige::api {
namespace {

constexpr size_t kToolsMax = 128;
constexpr size_t kDescriptionMax = size_t{1} << 16;
constexpr size_t kIdMax = 256;

// The text member "name" of a function.
ApiResult<std::string> read_name(const Json& function, const std::string& where) {
  const std::string param = where + ".name";
  const Json* name = find_field(function, "name");
  if (name && name->is_string() && is_tool_name(name->get_ref<const std::string&>())) {
    return name->get<std::string>();
  }
  return tl::unexpected(
      bad_field(param, "{} must be 1 to 64 letters, digits, \"_\", \"-\" and \".\", found {}",
                param, name ? shown_value(*name) : "nothing"));
}

// The object "function" of an entry whose type is "function".
ApiResult<const Json*> read_function(const Json& entry, const std::string& where) {
  if (!entry.is_object()) {
    return tl::unexpected(
        bad_field(where, "{} must be an object, found {}", where, shown_value(entry)));
  }
  const Json* type = find_field(entry, "type");
  if (type && *type != "function") {
    const std::string param = where + ".type";
    return tl::unexpected(
        bad_field(param, "{} must be \"function\", found {}", param, shown_value(*type)));
  }
  const Json* function = find_field(entry, "function");
  if (function && function->is_object()) return function;
  const std::string param = where + ".function";
  return tl::unexpected(bad_field(param, "{} must be an object, found {}", param,
                                  function ? shown_value(*function) : "nothing"));
}

ApiResult<std::string> read_tool(const Json& tool, const std::string& where) {
  const auto function = read_function(tool, where);
  if (!function) return tl::unexpected(function.error());
  const std::string place = where + ".function";
  auto name = read_name(**function, place);
  if (!name) return name;
  const Json* description = find_field(**function, "description");
  if (description && !(description->is_string() &&
                       description->get_ref<const std::string&>().size() <= kDescriptionMax)) {
    const std::string param = place + ".description";
    return tl::unexpected(
        bad_field(param, "{} must be a text of at most {} bytes", param, kDescriptionMax));
  }
  const Json* parameters = find_field(**function, "parameters");
  if (parameters && !parameters->is_object()) {
    const std::string param = place + ".parameters";
    return tl::unexpected(bad_field(param, "{} must be a JSON schema, an object, found {}", param,
                                    shown_value(*parameters)));
  }
  return name;
}

struct ToolChoice {
  enum class Kind { kNone, kAuto, kRequired, kNamed };
  Kind kind = Kind::kAuto;
  std::string name;                                 // kNamed
  std::optional<std::vector<std::string>> allowed;  // the tools that count; none: all
};

// {"mode": "auto", "tools": [{"type": "function", "function": {"name": …}}, …]}
ApiResult<ToolChoice> read_allowed_tools(const Json& choice) {
  const std::string where = "tool_choice.allowed_tools";
  const Json* allowed = find_field(choice, "allowed_tools");
  if (!allowed || !allowed->is_object()) {
    return tl::unexpected(bad_field(where, "{} must be an object, found {}", where,
                                    allowed ? shown_value(*allowed) : "nothing"));
  }
  const Json* mode = find_field(*allowed, "mode");
  if (!mode || (*mode != "auto" && *mode != "required")) {
    return tl::unexpected(bad_field(where + ".mode",
                                    "{}.mode must be \"auto\" or \"required\", found {}", where,
                                    mode ? shown_value(*mode) : "nothing"));
  }
  const Json* tools = find_field(*allowed, "tools");
  if (!tools || !tools->is_array() || tools->empty() || tools->size() > kToolsMax) {
    return tl::unexpected(bad_field(where + ".tools",
                                    "{}.tools must be a list of 1 to {}, found {}", where,
                                    kToolsMax, tools ? shown_value(*tools) : "nothing"));
  }
  ToolChoice read{*mode == "auto" ? ToolChoice::Kind::kAuto : ToolChoice::Kind::kRequired, {}, {}};
  read.allowed.emplace();
  for (size_t i = 0; i < tools->size(); ++i) {
    const std::string place = fmt::format("{}.tools[{}]", where, i);
    const auto function = read_function((*tools)[i], place);
    if (!function) return tl::unexpected(function.error());
    auto name = read_name(**function, place + ".function");
    if (!name) return tl::unexpected(std::move(name.error()));
    read.allowed->push_back(std::move(*name));
  }
  return read;
}

// An object: one function, or those that are allowed.
ApiResult<ToolChoice> read_chosen(const Json& choice) {
  const Json* type = find_field(choice, "type");
  if (type && *type == "allowed_tools") return read_allowed_tools(choice);
  const auto function = read_function(choice, "tool_choice");
  if (!function) return tl::unexpected(function.error());
  auto name = read_name(**function, "tool_choice.function");
  if (!name) return tl::unexpected(std::move(name.error()));
  return ToolChoice{ToolChoice::Kind::kNamed, std::move(*name), {}};
}

ToolChoice read_choice(FieldReader& fields, bool any_tools) {
  using Kind = ToolChoice::Kind;
  const Json* choice = fields.find("tool_choice");
  if (!choice) return {};
  if (*choice == "none") return {Kind::kNone, {}, {}};
  if (*choice == "auto") return {};  // the default, so it says nothing where there are no tools
  const bool required = *choice == "required";
  if (!required && !choice->is_object()) {
    fields.refuse(bad_field("tool_choice",
                            "tool_choice must be \"none\", \"auto\", \"required\" or an object "
                            "that names a function or those that are allowed, found {}",
                            shown_value(*choice)));
  } else if (!any_tools) {
    fields.refuse(bad_field("tool_choice", "tool_choice is allowed only where tools are given"));
  }
  if (required) return {Kind::kRequired, {}, {}};
  if (!choice->is_object()) return {};
  auto chosen = read_chosen(*choice);
  if (chosen) return std::move(*chosen);
  fields.refuse(std::move(chosen.error()));
  return {};
}

// Of tools that were read, those that are allowed, in the request's order.
Json keep_allowed(FieldReader& fields, const Json& list, const std::vector<std::string>& allowed,
                  std::vector<std::string>& names) {
  for (size_t i = 0; i < allowed.size(); ++i) {
    if (std::ranges::find(names, allowed[i]) != names.end()) continue;
    const std::string param = fmt::format("tool_choice.allowed_tools.tools[{}]", i);
    fields.refuse(
        bad_field(param, "{} names \"{}\", which is none of the tools", param, allowed[i]));
  }
  const auto counts = [&](const std::string& name) {
    return std::ranges::find(allowed, name) != allowed.end();
  };
  Json kept = Json::array();
  for (const Json& tool : list) {
    if (counts(tool["function"]["name"].get_ref<const std::string&>())) kept.push_back(tool);
  }
  std::erase_if(names, [&](const std::string& name) { return !counts(name); });
  return kept;
}

// The tools of a list that was read, of which a choice forces a call.
std::vector<CallableTool> callable_tools(FieldReader& fields, const Json& list,
                                         const ToolChoice& choice) {
  std::vector<CallableTool> tools;
  for (size_t i = 0; i < list.size(); ++i) {
    const Json& function = list[i]["function"];
    CallableTool tool{.name = function["name"].get<std::string>()};
    if (choice.kind == ToolChoice::Kind::kNamed && tool.name != choice.name) continue;
    if (choice.allowed && std::ranges::find(*choice.allowed, tool.name) == choice.allowed->end()) {
      continue;
    }
    const std::string param = fmt::format("tools[{}].function.parameters", i);
    tool.place = fmt::format("{} of \"{}\"", param, tool.name);
    auto schema = arguments_schema(find_field(function, "parameters"));
    if (!schema) {
      fields.refuse(bad_field(param, "{}: {}", tool.place, schema.error().message));
      continue;
    }
    tool.schema = std::move(*schema);
    tools.push_back(std::move(tool));
  }
  if (tools.empty() && !fields.error()) {
    fields.refuse(bad_field("tool_choice", "tool_choice names \"{}\", which is none of the tools",
                            choice.name));
  }
  return tools;
}

// The arguments of an earlier call: the text of a JSON object, or the object.
ApiResult<Json> read_arguments(const Json& function, const std::string& where) {
  const std::string param = where + ".arguments";
  const Json* given = find_field(function, "arguments");
  if (!given) return Json::object();
  if (given->is_object()) return *given;
  if (given->is_string()) {
    const auto& text = given->get_ref<const std::string&>();
    if (text.empty()) return Json::object();
    auto object = parse_json(text, param);
    if (object && object->is_object()) return std::move(*object);
  }
  return tl::unexpected(bad_field(param, "{} must be the text of a JSON object, found {}", param,
                                  shown_value(*given)));
}

ApiResult<Json> read_earlier_call(const Json& call, const std::string& where) {
  const auto function = read_function(call, where);
  if (!function) return tl::unexpected(function.error());
  const std::string place = where + ".function";
  auto name = read_name(**function, place);
  if (!name) return tl::unexpected(std::move(name.error()));
  auto arguments = read_arguments(**function, place);
  if (!arguments) return arguments;
  Json read = {{"type", "function"},
               {"function", {{"name", std::move(*name)}, {"arguments", std::move(*arguments)}}}};
  const Json* id = find_field(call, "id");
  if (!id) return read;
  if (!id->is_string() || id->get_ref<const std::string&>().size() > kIdMax) {
    const std::string param = where + ".id";
    return tl::unexpected(bad_field(param, "{} must be a text of at most {} bytes", param, kIdMax));
  }
  read["id"] = *id;
  return read;
}

}  // namespace

ToolRequest read_tools(FieldReader& fields, const ServedModel& model) {
  const Json* list = fields.find("tools");
  const bool any = list && !(list->is_array() && list->empty());
  const ToolChoice choice = read_choice(fields, any);
  ToolRequest read{.parallel = fields.boolean("parallel_tool_calls").value_or(true)};
  if (!any) return read;
  if (!list->is_array() || list->size() > kToolsMax) {
    fields.refuse(bad_field("tools", "tools must be a list of at most {}, found {}", kToolsMax,
                            shown_value(*list)));
    return read;
  }
  for (size_t i = 0; i < list->size(); ++i) {
    auto name = read_tool((*list)[i], fmt::format("tools[{}]", i));
    if (!name) fields.refuse(std::move(name.error()));
    if (name) read.names.push_back(std::move(*name));
  }
  if (choice.kind == ToolChoice::Kind::kNone) return read;
  if (model.tool_format == ToolFormat::kNone) fields.refuse(no_tools("tools", model));
  read.tools = choice.allowed && !fields.error()
                   ? keep_allowed(fields, *list, *choice.allowed, read.names)
                   : *list;
  read.format = model.tool_format;
  const bool is_auto = choice.kind == ToolChoice::Kind::kAuto;
  const auto schema =
      is_auto && model.tool_format != ToolFormat::kHarmony ? response_schema(fields) : std::nullopt;
  if ((is_auto && !schema) || fields.error()) return read;
  read.named = choice.kind == ToolChoice::Kind::kNamed;
  const std::vector<CallableTool> tools = callable_tools(fields, *list, choice);
  if (tools.empty()) return read;
  const bool several = read.parallel && !read.named;
  read.constraint =
      schema ? calls_or_json(model, tools, several, *schema) : forced_calls(model, tools, several);
  return read;
}

ApiResult<Json> read_tool_calls(const Json& message, const std::string& where,
                                const ServedModel& model) {
  const Json* list = find_field(message, "tool_calls");
  if (!list || (list->is_array() && list->empty())) return Json();
  const std::string param = where + ".tool_calls";
  if (!list->is_array() || list->size() > kToolsMax) {
    return tl::unexpected(bad_field(param, "{} must be a list of at most {}, found {}", param,
                                    kToolsMax, shown_value(*list)));
  }
  if (model.tool_format == ToolFormat::kNone) return tl::unexpected(no_tools(param, model));
  Json calls = Json::array();
  for (size_t i = 0; i < list->size(); ++i) {
    auto call = read_earlier_call((*list)[i], fmt::format("{}[{}]", param, i));
    if (!call) return call;
    calls.push_back(std::move(*call));
  }
  return calls;
}

ApiError no_tools(std::string param, const ServedModel& model) {
  ApiError error = bad_field(
      param,
      "{}: the chat template of \"{}\" has no tools, or writes their calls in a way that is not "
      "known here (known: <tool_call>, [TOOL_CALLS], <|python_tag|>, <|channel|>commentary)",
      param, model.name);
  error.code = "unsupported_parameter";
  return error;
}

}  // namespace jige::api
