#include "api/chat_request.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "api/constraint_fields.h"
#include "api/content_parts.h"
#include "api/refused_fields.h"
#include "api/request_images.h"
#include "text/chat_encode.h"
#include "text/reasoning.h"

namespace jige::api {
namespace {

ApiResult<std::string> read_role(const Json& message, const std::string& where,
                                 const ServedModel& model) {
  const std::string param = where + ".role";
  const auto it = message.find("role");
  if (it != message.end() && it->is_string()) {
    const std::string role = it->get<std::string>();
    if (role == "developer") return std::string("system");
    if (role == "system" || role == "user" || role == "assistant") return role;
    if (role == "tool" && model.tool_format != ToolFormat::kNone) return role;
    if (role == "tool") return tl::unexpected(no_tools(param, model));
    if (role == "function") {
      return tl::unexpected(unsupported_field(param, "messages of functions are"));
    }
  }
  return tl::unexpected(bad_field(param,
                                  "{} must be system, developer, user, assistant or tool, found {}",
                                  param, it == message.end() ? "nothing" : shown_value(*it)));
}

// The content of a message: a text, a list of parts with images, or none where `may_lack` says that
// another member is there for it.
ApiResult<Json> read_content(const Json& message, const std::string& where, bool may_lack,
                             std::string_view role, RequestImages& images) {
  const std::string param = where + ".content";
  const auto content = message.find("content");
  if (content != message.end() && content->is_string()) return *content;
  if (content != message.end() && content->is_array()) {
    return read_parts(*content, param, role, images);
  }
  if (may_lack && (content == message.end() || content->is_null())) return Json();
  return tl::unexpected(bad_field(param, "{} must be a text or a list of parts, found {}", param,
                                  content == message.end() ? "nothing" : shown_value(*content)));
}

bool has_text(const Json& message, const char* name) {
  const Json* member = find_field(message, name);
  return member && member->is_string();
}

// A message with calls has one message before it in channels: what was thought, and what was said.
void join_before_calls(Json& message) {
  for (const char* thought : {"reasoning_content", "reasoning"}) {
    if (!has_text(message, thought) || !has_text(message, "content")) continue;
    const auto& said = message["content"].get_ref<const std::string&>();
    if (!said.empty()) message[thought] = message[thought].get<std::string>() + "\n" + said;
    message["content"] = Json();
    return;
  }
}

ApiResult<Json> read_message(const Json& message, const std::string& where,
                             const ServedModel& model, RequestImages& images) {
  if (!message.is_object()) {
    return tl::unexpected(
        bad_field(where, "{} must be an object, found {}", where, shown_value(message)));
  }
  auto role = read_role(message, where, model);
  if (!role) return tl::unexpected(std::move(role.error()));
  if (find_field(message, "function_call")) {
    return tl::unexpected(unsupported_field(where + ".function_call", "function calls are"));
  }
  Json calls;
  if (*role == "assistant") {
    auto read = read_tool_calls(message, where, model);
    if (!read) return read;
    calls = std::move(*read);
  }
  // An answer that ended inside its reasoning has no content.
  const bool reasoned = *role == "assistant" &&
                        (has_text(message, "reasoning_content") || has_text(message, "reasoning"));
  auto content = read_content(message, where, reasoned || !calls.is_null(), *role, images);
  if (!content) return content;
  if (content->is_null() && calls.is_null()) *content = "";
  Json read = {{"role", *role}, {"content", std::move(*content)}};
  if (!calls.is_null()) read["tool_calls"] = std::move(calls);
  for (const char* more : {"name", "reasoning_content", "reasoning", "tool_call_id"}) {
    const auto it = message.find(more);
    if (it != message.end() && it->is_string()) read[more] = *it;
  }
  if (read.contains("tool_calls") && model.tool_format == ToolFormat::kHarmony) {
    join_before_calls(read);
  }
  return read;
}

ApiResult<Json> read_messages(const FieldReader& fields, const ServedModel& model,
                              const RequestLimits& limits, RequestImages& images) {
  const Json* list = fields.find("messages");
  const auto most = static_cast<size_t>(limits.messages_max);
  if (!list || !list->is_array() || list->empty() || list->size() > most) {
    return tl::unexpected(bad_field("messages", "messages must be a list of 1 to {}, found {}",
                                    most, list ? shown_value(*list) : "nothing"));
  }
  Json messages = Json::array();
  for (size_t i = 0; i < list->size(); ++i) {
    auto message = read_message((*list)[i], fmt::format("messages[{}]", i), model, images);
    if (!message) return tl::unexpected(std::move(message.error()));
    messages.push_back(std::move(*message));
  }
  return messages;
}

// The variables a request gives to the template.
Json read_variables(FieldReader& fields) {
  Json variables = Json::object();
  if (const Json* given = fields.find("chat_template_kwargs")) {
    if (given->contains("messages")) {
      fields.refuse(bad_field("chat_template_kwargs",
                              "chat_template_kwargs must not hold messages; those are a field of "
                              "their own"));
    } else if (given->is_object()) {
      variables = *given;
    } else {
      fields.refuse(bad_field("chat_template_kwargs",
                              "chat_template_kwargs must be an object, found {}",
                              shown_value(*given)));
    }
  }
  if (const auto effort = fields.text("reasoning_effort", 64)) {
    variables["reasoning_effort"] = *effort;
  }
  return variables;
}

// What answers begin with that go on with a message.
text::ReasoningStart continued_start(const std::string& message) {
  const size_t open = message.rfind(text::kReasoningOpen);
  const size_t close = message.rfind(text::kReasoningClose);
  const bool inside = open != std::string::npos && (close == std::string::npos || close < open);
  return inside ? text::ReasoningStart::kOpened : text::ReasoningStart::kNone;
}

// What the answers to a prompt begin with. A constraint holds behind reasoning, or the prompt is
// made one that has it behind it.
text::ReasoningStart reasoning_start(const ServedModel& model, const ChatPrompt& prompt,
                                     bool is_forced, serve::EngineRequest& request) {
  if (!model.has_reasoning) return text::ReasoningStart::kNone;
  const bool goes_on = prompt.continued && !prompt.continued->empty();
  const text::ReasoningStart start = goes_on
                                         ? continued_start(*prompt.continued)
                                         : text::reasoning_start(model.tokenizer, request.prompt);
  if (!request.constraint) return start;
  // A forced call brings the header of its message.
  if (is_forced && start == text::ReasoningStart::kChannels) return text::ReasoningStart::kNone;
  return text::constrained_start(model.tokenizer, start, request.prompt);
}

// Whether the answer goes on with the last message.
bool read_continuing(FieldReader& fields, bool generation_prompt) {
  const bool continues = fields.boolean("continue_final_message").value_or(false);
  if (continues && generation_prompt) {
    fields.refuse(bad_field("continue_final_message",
                            "continue_final_message is allowed only where add_generation_prompt "
                            "is false"));
  }
  return continues;
}

void read_logprobs(FieldReader& fields, const RequestLimits& limits, GenerationFields& read) {
  read.logprobs = fields.boolean("logprobs").value_or(false);
  const auto top = fields.integer("top_logprobs", {0, limits.top_logprobs_max});
  if (top.value_or(0) > 0 && !read.logprobs) {
    fields.refuse(bad_field("top_logprobs", "top_logprobs is allowed only where logprobs is true"));
  }
  read.engine.top_count = static_cast<int>(top.value_or(0));
}

// Cuts a prompt where that is asked for, before an answer of `tokens_max`. 400 where the context
// has no room for it, and where images are asked for what texts have.
std::optional<ApiError> fit_prompt(const PromptFields& fields, int64_t tokens_max,
                                   const ServedModel& model, ChatPrompt& prompt) {
  if (!prompt.images.empty()) {
    if (fields.truncate) {
      return unsupported_field("truncate_prompt_tokens", "cutting prompts with images is");
    }
    if (fields.shown.any()) {
      return unsupported_field("prompt_logprobs", "log-probabilities of prompts with images are");
    }
  }
  if (fields.truncate) fields.cut(prompt.ids, tokens_max, model.context_max);
  return check_prompt_length(static_cast<size_t>(prompt.token_count()), model, "messages");
}

}  // namespace

ApiResult<ChatPrompt> encode_messages(FieldReader& fields, const ToolRequest& tools,
                                      const ServedModel& model, const RequestLimits& limits) {
  if (!model.chat_template) {
    return tl::unexpected(
        bad_field("messages",
                  "the model \"{}\" has no chat template; use /v1/completions, or put a "
                  "chat_template.jinja into its folder",
                  model.name));
  }
  const bool generation_prompt = fields.boolean("add_generation_prompt").value_or(true);
  const bool continues = read_continuing(fields, generation_prompt);
  const Json variables = read_variables(fields);
  if (fields.error()) return tl::unexpected(*fields.error());
  RequestImages images(model, limits);
  const auto messages = read_messages(fields, model, limits, images);
  if (!messages) return tl::unexpected(messages.error());
  const text::ChatOptions options{
      .add_generation_prompt = generation_prompt,
      .tools = tools.tools.is_null() ? nullptr : &tools.tools,
      .variables = &variables,
      .image = model.images ? model.images->written() : text::ImageText()};
  const auto encode = continues ? text::encode_chat_continued : text::encode_chat;
  Result<std::vector<int32_t>> ids =
      encode(model.tokenizer, *model.chat_template, *messages, options);
  // A conversation that the template refuses, or that passes the template's own limits.
  if (!ids) return tl::unexpected(to_text_error(ids.error(), "messages"));
  if (auto error = images.check_places(*ids)) return tl::unexpected(std::move(*error));
  ChatPrompt prompt{.ids = std::move(*ids), .image_tokens = images.more_tokens()};
  prompt.images = std::move(images).take();
  if (continues) prompt.continued = messages->back()["content"].get<std::string>();
  return prompt;
}

ApiResult<PreparedRequest> prepare_chat(const Json& body, const ServedModel& model,
                                        const RequestLimits& limits, uint64_t seed) {
  FieldReader fields(body);
  ChosenAdapter adapter = read_model_name(fields, model);
  refuse_unserved(fields, Endpoint::kChat);
  GenerationFields read = read_generation_fields(fields, model, limits, seed);
  read.engine.adapter = adapter.number;
  read.engine.lease = std::move(adapter.lease);
  PromptFields shown = read_prompt_fields(fields, limits, Endpoint::kChat, read.stream);
  const auto older = fields.integer("max_tokens", {shown.tokens_least(), INT32_MAX});
  const auto newer = fields.integer("max_completion_tokens", {shown.tokens_least(), INT32_MAX});
  read_logprobs(fields, limits, read);
  const bool include_reasoning = fields.boolean("include_reasoning").value_or(true);
  ToolRequest tools = read_tools(fields, model);
  if (read.engine.constraint && tools.format != ToolFormat::kNone &&
      !(tools.constraint && response_schema(fields))) {
    fields.refuse(bad_field(
        "tools", "tools and a constrained answer do not go together; set tool_choice to \"none\""));
  }
  if (fields.error()) return tl::unexpected(*fields.error());
  if (tools.constraint) {
    auto compiled = compile_constraint(model, *tools.constraint, "tools");
    if (!compiled) return tl::unexpected(std::move(compiled.error()));
    read.engine.constraint = std::move(*compiled);
  }
  auto prompt = encode_messages(fields, tools, model, limits);
  if (!prompt) return tl::unexpected(std::move(prompt.error()));
  if (auto error = fit_prompt(shown, newer ? *newer : older.value_or(1), model, *prompt)) {
    return tl::unexpected(std::move(*error));
  }

  const int64_t room = model.context_max - prompt->token_count();
  const int64_t usual = std::min(model.tokens_default.value_or(room), room);
  read.engine.tokens_max = newer ? *newer : older.value_or(usual);
  if (read.engine.tokens_min > read.engine.tokens_max) {
    return tl::unexpected(bad_field("min_tokens",
                                    "min_tokens must be at most the answer's length, {}, found {}",
                                    read.engine.tokens_max, read.engine.tokens_min));
  }
  ask_for_scores(shown, std::nullopt, read.engine);
  read.engine.prompt = std::move(prompt->ids);
  read.engine.continues_text = prompt->continued.has_value();
  read.engine.logprobs = read.logprobs;
  read.engine.shown_ids = tool_mark_ids(tools.format, model.tokenizer);
  read.engine.reasoning =
      reasoning_start(model, *prompt, tools.constraint.has_value(), read.engine);
  if (read.engine.reasoning != text::ReasoningStart::kNone) {
    for (const int32_t id : text::reasoning_mark_ids(model.tokenizer)) {
      read.engine.shown_ids.push_back(id);
    }
  }
  PreparedRequest prepared{.stream = read.stream,
                           .include_usage = read.include_usage,
                           .logprobs = read.logprobs,
                           .prompt = shown.shown,
                           .tools = std::move(tools),
                           .images = std::move(prompt->images),
                           .include_reasoning = include_reasoning};
  prepared.prompt_tokens = std::ssize(read.engine.prompt) + prompt->image_tokens;
  prepared.engine.push_back(std::move(read.engine));
  if (auto error = check_score_count(prepared.engine, limits)) {
    return tl::unexpected(std::move(*error));
  }
  return prepared;
}

}  // namespace jige::api
