// Chat templates: the Jinja subset that model folders use, rendered as `transformers` renders it
// (trim_blocks and lstrip_blocks on, tojson without ASCII escapes, {% generation %} blocks).
//
//   JIGE_TRY(const auto chat, text::ChatTemplate::parse(tokenizer.chat_template(), "template"));
//   JIGE_TRY(const std::string prompt, chat.render(messages, {.add_generation_prompt = true}));
//
// A template comes with a model and is not trusted: it has no access to anything but the values
// given to it, and its steps, output size, memory and nesting are bounded, so that it ends with a
// result or an error (kExhausted naming the limit). raise_exception("…") in a template is
// kInvalidArgument with the template's message.
//
// Threads: a ChatTemplate is an immutable handle, cheap to copy; render() from any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "text/image_text.h"

namespace jige::text {

struct ChatOptions {
  // Ends the text where the assistant's next answer begins.
  bool add_generation_prompt = false;
  std::string bos_token = {};
  std::string eos_token = {};
  // A JSON array of tool descriptions, or null.
  const Json* tools = nullptr;
  // A JSON object whose members become variables of the template, or null. One named "messages" is
  // refused.
  const Json* variables = nullptr;
  // Seconds since 1970 that strftime_now() shows in local time; below 0 means now.
  int64_t now_s = -1;
  // What the functions of chat_encode.h put in place of a token that the template writes.
  ImageText image = {};
};

// A byte range [begin, end) of a rendered text.
struct ChatSpan {
  size_t begin = 0;
  size_t end = 0;
  bool operator==(const ChatSpan&) const = default;
};

struct ChatRender {
  std::string text;
  // What the template wrote inside {% generation %} blocks, in order, without overlap.
  std::vector<ChatSpan> generated;
  // What making it cost; evaluating an expression is a step, for example.
  int64_t steps = 0;
};

class ChatTemplate {
 public:
  // Parses template source; `where` names it in errors. Fails with kCorrupt and the line on a
  // syntax error, kUnsupported on Jinja that is outside the subset (include, import, extends, …).
  static Result<ChatTemplate> parse(std::string_view source, std::string_view where);

  // The prompt text of a conversation: `messages` is a JSON array of {"role", "content", …}.
  // Members that are null count as absent, and as null where the template fails without them;
  // "reasoning" and "thinking" also count as "reasoning_content".
  // A content that is a text is given as a list of one part where the template shows it so alone.
  Result<std::string> render(const Json& messages, const ChatOptions& options) const;

  // The same with the spans of {% generation %} blocks.
  Result<ChatRender> render_with_spans(const Json& messages, const ChatOptions& options) const;

  // Whether the template has {% generation %} blocks.
  bool has_generation_blocks() const;
  // The source it was parsed from.
  const std::string& source() const;

 private:
  friend class ChatPrefixes;
  struct Compiled;
  explicit ChatTemplate(std::shared_ptr<const Compiled> compiled)
      : compiled_(std::move(compiled)) {}
  // REQUIRES: `list` is an array of objects.
  Result<ChatRender> render_prepared(const Json& list, const ChatOptions& options) const;

  std::shared_ptr<const Compiled> compiled_;
};

}  // namespace jige::text
