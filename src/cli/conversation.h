// A conversation with a model: its messages, and the prompt they make.
//
// Folders with a chat template use it. Without one the conversation is written as a plain
// transcript
//   User: Hello
//   Assistant: Hi!
// and the answer ends where the model begins the next "User:".
// Messages may bring images, where the model reads them (read_images()); these stand before the
// message's text.
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

#include "base/go_on.h"
#include "base/json.h"
#include "base/result.h"
#include "cli/reasoning_flag.h"
#include "images/image.h"
#include "serve/image_prompts.h"
#include "text/chat_template.h"
#include "text/reasoning.h"
#include "text/tokenizer.h"

namespace jige::cli {

struct Message {
  std::string role;  // "system", "user" or "assistant"
  std::string content;
  std::string reasoning = {};                 // of the assistant, for the template
  std::vector<std::string> image_files = {};  // of the user; where each of its images is
};

// A message as a chat template takes it: with images a list of parts, these before the text.
Json message_json(const Message& message);

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
  // A message of the user with images, and where each of them is. REQUIRES: read_images(),
  // has_template(), a file for each image.
  void add(std::string content, std::vector<images::Image> images, std::vector<std::string> files);
  // What reads images from now on; it must outlive the conversation.
  void read_images(serve::ImagePrompts& reader) { reader_ = &reader; }
  // Removes the last message.
  void take_back();
  // Replaces the system message; empty removes it.
  void set_system(const std::string& text);
  // Forgets everything but the system message.
  void reset();

  struct Limit {
    int64_t context_max = 0;
    int64_t room = 0;               // for the answer
    int64_t model_context_max = 0;  // what another context_max could be at most
  };
  // The whole conversation, ready for the answer. Fails with kInvalidArgument when the last message
  // alone does not fit, and as encode_chat and ImagePrompts::read do; nothing is left out then.
  Result<serve::ImagePrompt> prompt(const text::Tokenizer& tokenizer, Limit limit,
                                    const GoOn& go_on = {});
  // What the answer to a prompt begins with: reasoning only where it is expected.
  text::ReasoningStart reasoning_start(const text::Tokenizer& tokenizer,
                                       std::span<const int32_t> prompt) const;
  // Messages the last prompt() left out for good.
  int64_t dropped_count() const { return dropped_count_; }

  // {"messages": [{"role", "content", "reasoning_content"?}, …]}, a line that `jige train` reads;
  // images are named by their files.
  Json to_json() const;

 private:
  Result<std::vector<int32_t>> encode(const text::Tokenizer& tokenizer) const;
  // As prompt(), but what was left out stays out when it fails.
  Result<serve::ImagePrompt> shortened(const text::Tokenizer& tokenizer, Limit limit,
                                       const GoOn& go_on);
  // Those of the messages that are not left out.
  std::span<const images::Image> images() const {
    return std::span(images_).subspan(dropped_images_);
  }
  // Removes the oldest exchange; false when only the last message is left.
  bool drop_oldest();

  std::optional<text::ChatTemplate> chat_;
  bool has_reasoning_ = false;
  std::vector<Message> messages_;
  std::vector<images::Image> images_;  // of the messages, in their order
  serve::ImagePrompts* reader_ = nullptr;
  int64_t dropped_count_ = 0;
  size_t dropped_images_ = 0;  // while a prompt is made
};

}  // namespace jige::cli
