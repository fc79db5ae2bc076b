#include "api/chat_form.h"

#include <algorithm>

#include "api/chat_request.h"
#include "api/content_parts.h"

namespace jige::api {
namespace {

constexpr std::string_view kShared[] = {"model",
                                        "temperature",
                                        "top_p",
                                        "top_k",
                                        "min_p",
                                        "presence_penalty",
                                        "frequency_penalty",
                                        "repetition_penalty",
                                        "logit_bias",
                                        "seed",
                                        "stop",
                                        "stop_token_ids",
                                        "allowed_token_ids",
                                        "bad_words",
                                        "truncate_prompt_tokens",
                                        "min_tokens",
                                        "ignore_eos",
                                        "include_stop_str_in_output",
                                        "include_reasoning",
                                        "guided_json",
                                        "guided_regex",
                                        "guided_choice",
                                        "guided_grammar",
                                        "structured_outputs",
                                        "chat_template_kwargs",
                                        "parallel_tool_calls",
                                        "stream",
                                        "priority",
                                        "user",
                                        "cache_salt"};

// Whether `name` is `field` or something inside it.
bool is_inside(std::string_view name, std::string_view field) {
  if (!name.starts_with(field)) return false;
  const std::string_view rest = name.substr(field.size());
  return rest.empty() || rest.front() == '.' || rest.front() == '[';
}

}  // namespace

void ChatForm::keep(const Json& request) {
  for (const std::string_view name : kShared) {
    if (const Json* value = find_field(request, name)) body_[std::string(name)] = *value;
  }
}

void ChatForm::set(const std::string& name, Json value, std::string own) {
  if (value.is_null()) return;
  body_[name] = std::move(value);
  this->name(name, std::move(own));
}

void ChatForm::add_message(Json message, std::string own) {
  Json& messages = body_["messages"];
  name(fmt::format("messages[{}]", messages.size()), std::move(own));
  messages.push_back(std::move(message));
}

void ChatForm::add_call(Json call, std::string own) {
  Json& messages = body_["messages"];
  Json& calls = messages.back()["tool_calls"];
  name(fmt::format("messages[{}].tool_calls[{}]", messages.size() - 1, calls.size()),
       std::move(own));
  calls.push_back(std::move(call));
}

Json* ChatForm::open_message(std::string_view role) {
  Json& messages = body_["messages"];
  if (messages.empty() || messages.back()["role"] != role) return nullptr;
  return &messages.back();
}

ApiResult<PreparedRequest> ChatForm::prepare(const ServedModel& model, const RequestLimits& limits,
                                             uint64_t seed) const {
  auto prepared = prepare_chat(body_, model, limits, seed);
  if (!prepared) return tl::unexpected(renamed(std::move(prepared.error())));
  return prepared;
}

ApiResult<int64_t> ChatForm::count_tokens(const ServedModel& model,
                                          const RequestLimits& limits) const {
  FieldReader fields(body_);
  read_model_name(fields, model);
  refuse_unserved(fields, Endpoint::kChat);
  const ToolRequest tools = read_tools(fields, model);
  if (fields.error()) return tl::unexpected(renamed(*fields.error()));
  const auto prompt = encode_messages(fields, tools, model, limits);
  if (!prompt) return tl::unexpected(renamed(prompt.error()));
  return std::ssize(prompt->ids);
}

ApiError ChatForm::renamed(ApiError error) const {
  const std::string old = error.param;
  const std::pair<std::string, std::string>* best = nullptr;
  for (const auto& entry : names_) {
    const bool longer = !best || entry.first.size() > best->first.size();
    if (longer && is_inside(old, entry.first)) best = &entry;
  }
  std::string rest = best ? old.substr(best->first.size()) : "";
  for (const auto& [name, own] : insides_) {
    // Messages about several tools name the one further on.
    const size_t at = old == "tools" ? error.message.find(name) : std::string::npos;
    if (at != std::string::npos) error.message.replace(at, name.size(), own);
    if (!rest.starts_with(name)) continue;
    rest = own + rest.substr(name.size());
    break;
  }
  if (!best) return error;
  error.param = best->second + rest;
  if (error.message.starts_with(old)) error.message.replace(0, old.size(), error.param);
  return error;
}

ApiResult<std::string> content_text(const Json& content, const std::string& where,
                                    std::span<const std::string_view> types) {
  if (content.is_string()) return content.get<std::string>();
  if (!content.is_array()) {
    return tl::unexpected(bad_field(where, "{} must be a text or a list of parts, found {}", where,
                                    content.is_null() ? "nothing" : shown_value(content)));
  }
  Json parts = content;
  for (Json& part : parts) {
    const Json* type = find_field(part, "type");
    if (!type || !type->is_string()) continue;
    const bool known = std::ranges::find(types, type->get_ref<const std::string&>()) != types.end();
    if (known) part["type"] = "text";
  }
  return join_parts(parts, where);
}

const Json& member_of(const Json& object, std::string_view name) {
  static const Json kNull;
  const Json* value = find_field(object, name);
  return value ? *value : kNull;
}

void append_text(Json& message, const char* name, const std::string& text) {
  Json& known = message[name];
  if (known.is_null()) known = "";
  known.get_ref<std::string&>() += text;
}

const Json* object_field(FieldReader& fields, std::string_view name) {
  const Json* value = fields.find(name);
  if (!value || value->is_object()) return value;
  fields.refuse(
      bad_field(std::string(name), "{} must be an object, found {}", name, shown_value(*value)));
  return nullptr;
}

}  // namespace jige::api
