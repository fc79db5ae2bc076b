// The chat format of models that Jige trains from nothing: one token a role, and the end-of-text
// token behind every answer.
//
//   <|bos|><|system|>Be brief.<|user|>Hello<|assistant|>Hi!<|eos|>
//
// Threads: constants.
#pragma once

#include <string>
#include <vector>

namespace jige::cli {

inline constexpr const char* kBosToken = "<|bos|>";
inline constexpr const char* kEosToken = "<|eos|>";

// Every special token of the format, in the order of their ids.
std::vector<std::string> default_special_tokens();

// The template, in the Jinja subset of text/chat_template.h, with its answers marked.
std::string default_chat_template();

}  // namespace jige::cli
