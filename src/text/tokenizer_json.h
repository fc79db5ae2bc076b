// The text of a tokenizer.json with a BPE model, as Hugging Face `tokenizers` reads it.
//
// Threads: pure functions.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/json.h"

namespace jige::text {

// What the file's "model" says.
struct BpeModelJson {
  std::span<const std::pair<std::string_view, int64_t>> vocab;  // by ascending id
  std::span<const std::pair<std::string, std::string>> merges;  // by rank; no part has a space
  std::string_view unk_token = {};                              // empty: none
  bool fuse_unk = false;
  bool byte_fallback = false;
  bool ignore_merges = false;
};

// The object of an added token that stands for itself wherever its text occurs.
Json added_token_json(std::string_view content, bool special);

// A list of texts of special tokens with their ids.
using SpecialTexts = std::vector<std::pair<std::string, int64_t>>;

// A post-processor that puts tokens before and behind every text.
Json template_json(const SpecialTexts& before, const SpecialTexts& behind);

// The words of Qwen2: as GPT-4's, but with digits one by one.
inline constexpr const char* kQwen2Words =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}|)"
    R"( ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

// Pre-tokenizers: one that cuts words by a pattern; one that spells them byte by byte, and cuts
// them as GPT-2 does before, if so wanted; and both, one behind the other.
Json split_json(std::string_view pattern);
Json byte_level_json(bool gpt2_words);
Json split_then_bytes_json(std::string_view pattern);
// The same, but what the pattern does not match is left out.
Json matches_then_bytes_json(std::string_view pattern);
// The decoder of such words, and of what ByteLevel alone cuts.
Json byte_level_decoder_json();

// `root` holds everything but "model".
std::string tokenizer_json_text(const Json& root, const BpeModelJson& model);

}  // namespace jige::text
