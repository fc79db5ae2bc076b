// Marks around control tokens in what people write, so that templates cannot make tokens of them
// (see "Safety" in chat_encode.h).
//
// Threads: pure functions.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "text/added_tokens.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"

namespace jige::text {

// The control tokens of a tokenizer under a template.
class ControlTokens {
 public:
  ControlTokens(const Tokenizer& tokenizer, const ChatTemplate& chat);

  // The messages with every control token in a text or name between marks; marks already there are
  // dropped.
  Json mark_messages(const Json& messages) const;
  // The same for descriptions of tools.
  Json mark_tools(const Json& tools) const;

 private:
  TokenTrie special_;
  TokenTrie written_;  // special, or written by the template
};

struct Unmarked {
  std::string text;
  // The spans of the render, moved to their places in `text`.
  std::vector<ChatSpan> spans;
  // Places in `text` for EncodeOptions::guards.
  std::vector<size_t> guards;
};

// Takes the marks off a rendered text.
Unmarked remove_marks(const ChatRender& render);

}  // namespace jige::text
