// What the small files of a folder with a vocab.json and no tokenizer.json say: its class, and
// which special and added tokens there are, in what order and by which ids.
//
// Tokens stand in tokenizer_config.json, special_tokens_map.json and added_tokens.json. What wins
// over what, and which ids tokens get that are not in the vocabulary, is as in transformers 5:
//   - "added_tokens_decoder" of tokenizer_config.json, where it is there, leaves the other two
//     files unread; else special_tokens_map.json wins over tokenizer_config.json;
//   - first come the tokens that a file gives an id, by ascending ids; then those with a role (bos,
//     eos, unk, sep, pad, cls, mask), those of other fields that end in "_token", and the list
//     extra_special_tokens or additional_special_tokens;
//   - a token of the vocabulary keeps its id; others get the first number behind those given so
//     far, and behind the count of tokens in the vocabulary, which is not its largest id where it
//     has holes.
// Where a file says another id than a token would get that way, transformers 4 and 5 differ, and
// the folder is refused; so it is where the id is another token's.
//
// Threads: values; pure functions but for read_token_files.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "text/added_tokens.h"
#include "text/vocabulary.h"

namespace jige::text {

// The small files beside a vocab.json, as JSON objects; null where they are not there.
struct TokenFiles {
  Json config;   // tokenizer_config.json
  Json special;  // special_tokens_map.json
  Json added;    // added_tokens.json
  Json model;    // config.json
};

// Fails with kCorrupt on files that are no JSON objects.
Result<TokenFiles> read_token_files(const std::string& folder);

// transformers' class of a tokenizer, by which its words are known.
struct TokenizerClass {
  std::string name;  // empty: no file names one, and it is not known for the type of model
  // No tokenizer_config.json names it: config.json does, or its model_type.
  bool is_by_model = false;
  std::string model_type = {};  // where no file names a class
};
// What the files say; where there is no model_type either, GPT-2's.
TokenizerClass tokenizer_class_of(const TokenFiles& files);

// The texts of tokens with a role; empty where there is none.
struct RoleTexts {
  std::string bos, eos, unk, sep, pad, cls, mask;
};

struct FolderTokens {
  RoleTexts roles;
  std::vector<AddedToken> added;  // no text twice
};

struct TokenRules {
  RoleTexts usual;              // of roles that no file names
  bool flags_are_lost = false;  // special tokens are found in raw text and take no space along
};

// REQUIRES: `vocabulary` has `token_count` tokens. `where` names the vocabulary's file. Fails with
// kInvalidArgument on fields of another type, with kCorrupt on ids that cannot be, and with
// kUnsupported where transformers 4 and 5 give a token different ids.
Result<FolderTokens> find_folder_tokens(const TokenFiles& files, const TokenRules& rules,
                                        const Vocabulary& vocabulary, int64_t token_count,
                                        std::string_view where);

}  // namespace jige::text
