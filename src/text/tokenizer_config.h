// What lies beside the tokenizer in a model folder: tokenizer_config.json, special_tokens_map.json,
// chat_template.jinja or chat_template.json and the end tokens of generation_config.json.
//
// Threads: values; no shared state.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "text/added_tokens.h"

namespace jige::text {

// What only a list of tokens (vocab.txt) or DeBERTa's pieces need (spm.model): other files say it
// themselves.
struct WordListConfig {
  std::string cls_token, sep_token, mask_token;  // empty where not given
  std::optional<bool> lowers;                    // do_lower_case
  std::optional<bool> strips_accents;            // without it as `lowers`
  bool spaces_chinese = true;                    // tokenize_chinese_chars
  bool splits_punctuation = false;               // split_by_punct
};

struct TokenizerConfig {
  // Texts of the tokens with a role; empty where not given.
  std::string bos_token, eos_token, pad_token, unk_token;
  // Whether encoding adds these, where the file says so. Heard only where a tokenizer.json says
  // nothing of it and the class is one that adds tokens by itself, and with a tokenizer.model.
  std::optional<bool> add_bos, add_eos;
  std::string tokenizer_class;
  // The class in the folder's own code, "file.Class", where "auto_map" names one.
  std::string tokenizer_code;
  // "added_tokens_decoder": the flags here override those of tokenizer.json.
  std::vector<AddedToken> added;
  std::string chat_template;
  std::vector<int64_t> generation_eos_ids;
  WordListConfig words;
};

// The text of a file of up to 64 MiB, or nothing where it does not exist.
Result<std::optional<std::string>> read_optional_file(const std::string& path);

// Reads the files that are there; all are optional. Fails with kCorrupt on files that cannot be
// read as what they are.
Result<TokenizerConfig> load_tokenizer_config(const std::string& folder);

}  // namespace jige::text
