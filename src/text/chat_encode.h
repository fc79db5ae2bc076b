// From a conversation to token ids, safely, and with the mask that training needs.
//
// Safety: the text of special tokens inside message contents ("<|im_end|>" typed by a user) never
// becomes a special token; only what the template itself writes does.
//
// Answers: a token is the assistant's own when it ends inside an answer span. Spans come from the
// template's {% generation %} blocks; a template without them is rendered for every prefix of the
// conversation: an answer is what the text up to and including an assistant message has beyond the
// text before that message with the generation prompt added.
//
// Threads: pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"

namespace jige::text {

struct ChatEncoding {
  std::vector<int32_t> ids;
  // One per id: 1 where the token belongs to an assistant's answer, its end-of-turn token included.
  std::vector<uint8_t> answer;
};

// Ids of the rendered conversation, no special tokens added beyond the template's own.
// bos_token and eos_token of `options` are filled from the tokenizer where they are empty.
Result<std::vector<int32_t>> encode_chat(const Tokenizer& tokenizer, const ChatTemplate& chat,
                                         const Json& messages, const ChatOptions& options);

// The same with the answer mask, for training on answers only.
Result<ChatEncoding> encode_chat_answers(const Tokenizer& tokenizer, const ChatTemplate& chat,
                                         const Json& messages, const ChatOptions& options);

// The spans of `messages`' answers in the rendered text (see "Answers" above).
Result<ChatRender> render_answers(const ChatTemplate& chat, const Json& messages,
                                  const ChatOptions& options);

}  // namespace jige::text
