// How byte-level tokenizers of GGUF files cut text into words: what a name in tokenizer.ggml.pre
// stands for in a tokenizer.json, and which name stands for what a tokenizer.json says.
//
// Threads: pure functions.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "base/json.h"

namespace jige::formats {

struct GgufWords {
  std::string name;  // "llama-bpe"
  Json normalizer;   // as in tokenizer.json; null where there is none
  Json pre_tokenizer;
  bool ignore_merges = false;
  bool adds_bos = false;  // where no key says otherwise
};

// What a name stands for; nothing where Jige does not know it.
std::optional<GgufWords> find_gguf_words(std::string_view name);

// The name for the parts of a tokenizer.json, whose members without effect may differ; nothing
// where there is none. Of several names for the same, the one that is in use most.
std::optional<std::string> gguf_words_name(const Json& normalizer, const Json& pre_tokenizer,
                                           bool ignore_merges);

// The names that tokenizer.ggml.pre may have: "llama-bpe, llama3 …".
std::string known_gguf_pres();

}  // namespace jige::formats
