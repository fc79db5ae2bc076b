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

void ChatForm::add_text(const std::string& text) {
  api::add_text(body_["messages"].back()["content"], text);
}

void ChatForm::add_image(Json part, std::string own, std::string own_url) {
  Json& messages = body_["messages"];
  Json& content = messages.back()["content"];
  add_part(content, std::move(part));
  std::string place =
      fmt::format("messages[{}].content[{}]", messages.size() - 1, content.size() - 1);
  name(place + ".image_url.url", std::move(own_url));
  name(std::move(place), std::move(own));
}

Wrong ChatForm::add_content(const Json& content, const std::string& where,
                            std::span<const std::string_view> texts, const ImagePart& image) {
  add_text("");
  if (!content.is_array()) {
    auto text = content_text(content, where, texts);
    if (!text) return std::move(text.error());
    add_text(*text);
    return std::nullopt;
  }
  for (size_t i = 0; i < content.size(); ++i) {
    const std::string place = fmt::format("{}[{}]", where, i);
    if (member_of(content[i], "type") == image.type) {
      if (Wrong wrong = image.add(*this, content[i], place)) return wrong;
      continue;
    }
    auto text = part_text(content[i], place, texts);
    if (!text) return std::move(text.error());
    add_text(*text);
  }
  return std::nullopt;
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
  return prompt->token_count();
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
