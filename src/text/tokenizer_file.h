// Reads a tokenizer.json or a vocab.json in one pass: the long lists (model.vocab, model.merges)
// into lists, all the rest into a small JSON tree. A tree of the whole would cost quadratic time,
// since an object of ordered JSON looks keys up one by one.
//
// Threads: values; no shared state.
#pragma once

#include <cstdint>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "text/text_pairs.h"

namespace jige::text {

struct TokenizerFile {
  // The file without model.vocab and model.merges; always an object.
  std::shared_ptr<const Json> root;
  std::vector<std::pair<std::string, int64_t>> vocab;
  TextPairs merges;
  // model.vocab was a list of [text, score], as in Unigram models: `vocab` has the texts with their
  // places as ids, this the scores.
  bool vocab_is_list = false;
  std::vector<double> scores;
};

// Parses the text of a tokenizer.json; `where` names it in errors. Fails with kCorrupt on syntax
// errors, nesting deeper than 64, wrong types in vocab and merges, and objects of more than
// kJsonMembersMax members elsewhere.
Result<TokenizerFile> parse_tokenizer_file(std::string_view text, std::string_view where);

// The tokens with their ids of a vocab.json, an object of numbers, in its order. Fails with
// kCorrupt on anything else.
Result<std::vector<std::pair<std::string, int64_t>>> parse_vocabulary_file(std::string_view text,
                                                                           std::string_view where);

}  // namespace jige::text
