// Renders of the beginnings of a conversation, and of it with one message changed, for the price of
// what is new in them.
//
// A template writes a conversation message by message. As it writes all of it, it is noted where
// each turn begins and how much of the list was looked at until then (jinja_interpreter.h). A
// beginning is then made from the last place before which nothing was looked at that it lacks or
// has otherwise: what stands before is shared, only the rest is run. So templates that look at no
// more than a few messages ahead make all beginnings in time that grows with the conversation.
// Those that look at its end first (its length, its last message) are run from the start; loops
// that come to the same as before go on from their last such turn (jinja_replay.h), and turns
// behind a changed message that do not notice it are not run.
//
// Invariant: a text is the one of ChatTemplate::render, to the byte.
// Threads: one at a time.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "base/json.h"
#include "base/result.h"
#include "text/chat_template.h"

namespace jige::text {

// The first messages of a conversation, one of them another if wanted.
struct ChatVariant {
  size_t count = 0;
  bool prompt = false;  // in place of ChatOptions::add_generation_prompt
  std::optional<size_t> changed_at;
  Json changed;
};

// A text that begins, and may end, like that of the whole conversation.
struct ChatVariantText {
  size_t shared = 0;      // bytes at the beginning
  std::string rest = {};  // behind them
  size_t tail = 0;        // bytes at the end of the whole, behind `rest`

  size_t size() const { return shared + rest.size() + tail; }
};

class ChatPrefixes {
 public:
  // Renders the whole. Fails as ChatTemplate::render. All three must outlive the result.
  static Result<ChatPrefixes> create(const ChatTemplate& chat, const Json& messages,
                                     const ChatOptions& options);
  ChatPrefixes(ChatPrefixes&&) noexcept;
  ~ChatPrefixes();

  const std::string& text() const { return text_; }
  // Fails as ChatTemplate::render. REQUIRES: count and changed_at are within the messages.
  Result<ChatVariantText> render(const ChatVariant& variant);
  // Steps that all renders took.
  int64_t steps() const { return steps_; }

 private:
  struct Run;
  ChatPrefixes(const ChatTemplate& chat, const Json& messages, const ChatOptions& options);
  Result<std::unique_ptr<Run>> run_whole(bool prompt);
  Run* run_of(bool prompt);
  Result<ChatVariantText> render_anew(const ChatVariant& variant);

  const ChatTemplate& chat_;
  const Json& messages_;
  const ChatOptions& options_;
  std::string text_;
  int64_t steps_ = 0;
  std::array<std::unique_ptr<Run>, 2> runs_;  // without and with prompt
  std::array<bool, 2> tried_ = {};
};

}  // namespace jige::text
