// A conversation with a model: its messages, and the prompt they make.
//
// Folders with a chat template use it. Without one the conversation is written as a plain
// transcript
//   User: Hello
//   Assistant: Hi!
// and the answer ends where the model begins the next "User:".
// When the prompt with `room` tokens for the answer passes the context, the oldest exchanges are
// left out (the system message stays), and dropped_count() says how many messages.
// Threads: one thread.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "cli/reasoning_flag.h"
#include "text/chat_template.h"
#include "text/reasoning.h"
#include "text/tokenizer.h"

namespace jige::cli {

struct Message {
  std::string role;  // "system", "user" or "assistant"
  std::string content;
  std::string reasoning = {};  // of the assistant, for the template
};

class Conversation {
 public:
  // Fails with kCorrupt or kUnsupported on a template that cannot be parsed; `where` names it.
  static Result<Conversation> create(const text::Tokenizer& tokenizer, const std::string& where,
                                     const ReasoningFlag& reasoning = {});

  bool has_template() const { return chat_.has_value(); }
  // Texts that end an answer besides the end-of-text token.
  std::vector<std::string> stop_strings() const;

  // Special tokens that answers show as text.
  std::vector<int32_t> shown_ids(const text::Tokenizer& tokenizer) const;

  const std::vector<Message>& messages() const { return messages_; }
  void add(std::string role, std::string content, std::string reasoning = {}) {
    messages_.push_back({std::move(role), std::move(content), std::move(reasoning)});
  }
  // Removes the last message.
  void take_back() { messages_.pop_back(); }
  // Replaces the system message; empty removes it.
  void set_system(const std::string& text);
  // Forgets everything but the system message.
  void reset();

  struct Limit {
    int64_t context_max = 0;
    int64_t room = 0;               // for the answer
    int64_t model_context_max = 0;  // what another context_max could be at most
  };
  // The ids of the whole conversation, ready for the answer. Fails with kInvalidArgument when the
  // last message alone does not fit, and as encode_chat does; nothing is left out then.
  Result<std::vector<int32_t>> prompt(const text::Tokenizer& tokenizer, Limit limit);
  // What the answer to a prompt begins with: reasoning only where it is expected.
  text::ReasoningStart reasoning_start(const text::Tokenizer& tokenizer,
                                       std::span<const int32_t> prompt) const;
  // Messages the last prompt() left out for good.
  int64_t dropped_count() const { return dropped_count_; }

  // {"messages": [{"role", "content", "reasoning_content"?}, …]}, a line that `jige train` reads.
  Json to_json() const;

 private:
  Result<std::vector<int32_t>> encode(const text::Tokenizer& tokenizer) const;
  // As prompt(), but what was left out stays out when it fails.
  Result<std::vector<int32_t>> shortened(const text::Tokenizer& tokenizer, Limit limit);
  // Removes the oldest exchange; false when only the last message is left.
  bool drop_oldest();

  std::optional<text::ChatTemplate> chat_;
  bool has_reasoning_ = false;
  std::vector<Message> messages_;
  int64_t dropped_count_ = 0;
};

}  // namespace jige::cli
