#include "text/chat_template.h"

#include <nlohmann/json.hpp>

#include "text/chat_compiled.h"
#include "text/jinja_parser.h"

namespace jige::text {

// What the assistant thought goes by several names, of which templates read one or another.
Json prepared_message(const Json& message, MessageForm form) {
  const Json* thought = nullptr;
  for (const char* name : {"reasoning_content", "thinking", "reasoning"}) {
    const auto it = message.find(name);
    if (!thought && it != message.end() && !it->is_null()) thought = &*it;
  }
  Json kept = Json::object();
  if (thought) kept["thinking"] = *thought;
  for (const auto& [key, value] : message.items()) {
    const bool kept_null = form.nulls == Nulls::kKeep && !kept.contains(key);
    if (!value.is_null() || kept_null) kept[key] = value;
  }
  const auto content = kept.find("content");
  if (form.parts && content != kept.end() && content->is_string()) {
    *content = Json::array({{{"type", "text"}, {"text", std::move(*content)}}});
  }
  if (thought) kept["reasoning_content"] = *thought;
  return kept;
}

Result<Json> prepared_messages(const Json& messages, MessageForm form) {
  if (!messages.is_array()) {
    return fail(Code::kInvalidArgument, "messages must be a list of objects");
  }
  Json list = Json::array();
  for (const Json& message : messages) {
    if (!message.is_object()) {
      return fail(Code::kInvalidArgument, "message {} is not an object", list.size());
    }
    list.push_back(prepared_message(message, form));
  }
  return list;
}

namespace {

bool has_null_members(const Json& messages) {
  for (const Json& message : messages) {
    for (const Json& member : message) {
      if (member.is_null()) return true;
    }
  }
  return false;
}

Status define_json(jinja::Interpreter& run, std::string_view name, const Json* json) {
  if (!json) {
    run.define(name, jinja::Value::none());
    return {};
  }
  JIGE_TRY(jinja::Value value, jinja::from_json(*json, run.budget()));
  run.define(name, std::move(value));
  return {};
}

constexpr const char* kProbe = "qzx";

// Whether a template writes the probe that stands in this content.
bool shows(const jinja::Template& tree, const Json& content) {
  const Json messages = Json::array({{{"role", "user"}, {"content", content}}});
  jinja::Interpreter run(tree, 0, jinja::Budget(100'000, 1 << 20));
  if (!define_json(run, "messages", &messages) || !define_options(run, {})) return false;
  const auto render = run.run();
  return render && render->text.find(kProbe) != std::string::npos;
}

// Some templates of models that read images loop over parts and show nothing of a text.
bool shows_parts_alone(const jinja::Template& tree, std::string_view source) {
  if (source.find("type") == source.npos || shows(tree, kProbe)) return false;
  return shows(tree, Json::array({{{"type", "text"}, {"text", kProbe}}}));
}

}  // namespace

Result<ChatTemplate> ChatTemplate::parse(std::string_view source, std::string_view where) {
  JIGE_TRY(jinja::Template tree, jinja::parse_template(source, where));
  Compiled compiled{.tree = std::move(tree), .source = std::string(source)};
  compiled.wants_parts = shows_parts_alone(compiled.tree, source);
  return ChatTemplate(std::make_shared<const Compiled>(std::move(compiled)));
}

const std::string& ChatTemplate::source() const { return compiled_->source; }

bool ChatTemplate::has_generation_blocks() const { return compiled_->tree.has_generation; }

Result<std::string> ChatTemplate::render(const Json& messages, const ChatOptions& options) const {
  JIGE_TRY(ChatRender render, render_with_spans(messages, options));
  return std::move(render.text);
}

Result<ChatRender> ChatTemplate::render_with_spans(const Json& messages,
                                                   const ChatOptions& options) const {
  const bool parts = compiled_->wants_parts;
  JIGE_TRY(const Json list, prepared_messages(messages, {.nulls = Nulls::kDrop, .parts = parts}));
  auto render = render_prepared(list, options);
  if (render || !has_null_members(messages)) return render;
  // Some templates ask whether a content `is none`, and can do nothing with a missing one.
  JIGE_TRY(const Json with_nulls,
           prepared_messages(messages, {.nulls = Nulls::kKeep, .parts = parts}));
  auto second = render_prepared(with_nulls, options);
  return second ? std::move(second) : std::move(render);
}

Status define_options(jinja::Interpreter& run, const ChatOptions& options) {
  JIGE_DO(define_json(run, "tools", options.tools));
  JIGE_DO(define_json(run, "documents", nullptr));
  run.define("add_generation_prompt", jinja::Value::boolean(options.add_generation_prompt));
  // As in transformers, a token the tokenizer lacks is undefined.
  if (!options.bos_token.empty()) {
    run.define("bos_token", jinja::Value::string(options.bos_token));
  }
  if (!options.eos_token.empty()) {
    run.define("eos_token", jinja::Value::string(options.eos_token));
  }
  if (options.variables) {
    if (!options.variables->is_object()) {
      return fail(Code::kInvalidArgument, "the variables of a template must be an object");
    }
    for (const auto& [name, value] : options.variables->items()) {
      if (name == "messages") {
        return fail(Code::kInvalidArgument, "the variables of a template must not hold messages");
      }
      JIGE_DO(define_json(run, name, &value));
    }
  }
  return {};
}

Result<ChatRender> ChatTemplate::render_prepared(const Json& list,
                                                 const ChatOptions& options) const {
  jinja::Interpreter run(compiled_->tree, options.now_s);
  JIGE_DO(define_json(run, "messages", &list));
  JIGE_DO(define_options(run, options));
  return run.run();
}

}  // namespace jige::text
