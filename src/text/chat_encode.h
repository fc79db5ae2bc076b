// From a conversation to token ids, safely, and with the mask that training needs.
//
// Safety: before rendering, the text of control tokens inside messages and tools ("<|im_end|>"
// typed by a user, in texts and in names of arguments) is put between two marks that no template
// writes; after rendering the marks go, and no token may begin or span where they were. Control
// tokens are the special tokens, and but in messages of the assistant also other added tokens that
// the template itself writes ("<tool_call>"). So only what the template and its variables write
// becomes a control token.
//
// Answers: a token is the assistant's own when it ends inside an answer span. Spans come from the
// template's {% generation %} blocks. A template without them is rendered for parts of the
// conversation: an answer begins where the conversation before it ends with the generation prompt
// added, and ends with its message, white space at the very end excepted. Where later turns change
// how earlier ones look (thinking that is dropped), or the conversation ends with a token of its
// own, the ends come from comparing with renders in which only this answer's content is another.
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

// Ids of the rendered conversation, no special tokens added beyond the template's own. Texts of
// images stand where the template writes their token, here and in the others.
// bos_token and eos_token of `options` are filled from the tokenizer where they are empty.
Result<std::vector<int32_t>> encode_chat(const Tokenizer& tokenizer, const ChatTemplate& chat,
                                         const Json& messages, const ChatOptions& options);

// The same for an answer that goes on with the last message: ends where its content does, without
// the white space behind it where the template drops that. `options` without a generation prompt.
// Fails also with kInvalidArgument where the last message has no text as its content, or the
// template does not show it.
Result<std::vector<int32_t>> encode_chat_continued(const Tokenizer& tokenizer,
                                                   const ChatTemplate& chat, const Json& messages,
                                                   const ChatOptions& options);

// The same with the answer mask, for training on answers only.
Result<ChatEncoding> encode_chat_answers(const Tokenizer& tokenizer, const ChatTemplate& chat,
                                         const Json& messages, const ChatOptions& options);

// A conversation and the assistant's next answer to it, end-of-turn token excepted.
struct ChatReply {
  std::vector<int32_t> ids;
  size_t prompt_count = 0;  // of `ids`: what encode_chat gives with add_generation_prompt
};

// The ids of an answer behind those of the prompt, as text that goes on from it: with the white
// space that the template puts between the two, and without the space or word mark that the
// tokenizer puts before a text of its own. The prompt's ids stay what a model is asked with: where
// a token would grow across its end, the answer is encoded apart. Special tokens spelled out in the
// answer stay ordinary text. `options` as for encode_chat.
Result<ChatReply> encode_chat_reply(const Tokenizer& tokenizer, const ChatTemplate& chat,
                                    const Json& messages, const std::string& reply,
                                    const ChatOptions& options);

// The rendered text with the spans of the answers (see "Answers" above) in `generated`.
Result<ChatRender> render_answers(const ChatTemplate& chat, const Json& messages,
                                  const ChatOptions& options);

}  // namespace jige::text
