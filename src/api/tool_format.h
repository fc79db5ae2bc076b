// How a model family writes calls of tools into its answers, and how it is told from a chat
// template.
//
//   hermes    <tool_call>{"name": …, "arguments": {…}}</tool_call>, anywhere in the answer
//   (Qwen 2.5
//             and 3, Hermes)
//   mistral   [TOOL_CALLS][{"name": …, "arguments": {…}}, …], or [TOOL_CALLS]name[ARGS]{…}
//   llama     the whole answer is {"name": …, "parameters": {…}}, more of them behind ";"; a
//             <|python_tag|> may stand before it (Llama 3.1 and later)
//   harmony   a message <|channel|>commentary to=functions.name <|constrain|>json<|message|>{…};
//   its
//             receiver may stand before the channel (gpt-oss)
//
// Threads: pure functions.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "text/chat_template.h"
#include "text/tokenizer.h"

namespace jige::api {

enum class ToolFormat { kNone, kHermes, kMistral, kLlama, kHarmony };

// "off", "hermes", "mistral", "llama" and "harmony"; nothing for other names.
std::optional<ToolFormat> find_tool_format(std::string_view name);

// The format that a chat template writes earlier calls in; kNone where it has no tools, or writes
// their calls in a way that is not known here.
ToolFormat tool_format_of(const text::ChatTemplate& chat);

// What the ids of Mistral's calls are made of.
inline constexpr std::string_view kCallIdLetters =
    "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
inline constexpr size_t kCallIdLength = 9;

// What may name a tool: 1 to 64 letters, digits, "_", "-" and ".".
bool is_tool_name(std::string_view name);

// The special tokens that a format puts around calls: answers must show them as text.
std::vector<int32_t> tool_mark_ids(ToolFormat format, const text::Tokenizer& tokenizer);

// An id for call `call` of choice `choice` of the answer `answer_id`, in the form that the format's
// templates accept: nine letters and digits for Mistral, else "call_" and sixteen digits.
std::string tool_call_id(ToolFormat format, std::string_view answer_id, size_t choice, size_t call);

}  // namespace jige::api
