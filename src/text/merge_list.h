// A vocab.json with its merges.txt: the tokens and merges of a byte-level BPE as GPT-2's, RoBERTa's
// and Qwen2's folders have them beside a tokenizer.json, or alone. How text is cut into words, and
// what stands around it, follows from the class that the folder names; the tokens that are added,
// from the files beside them (token_files.h).
//
//   vocab.json   {"token": id, …}, tokens spelled byte by byte as GPT-2 does
//   merges.txt   a line of a version; then a line "left right" for each merge, the earliest first
//
// Threads: values; pure function.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"
#include "text/token_files.h"
#include "text/tokenizer_core.h"

namespace jige::text {

struct MergeFiles {
  std::string_view vocab;  // the texts of the two files, and what errors call them
  std::string vocab_where = {};
  std::string_view merges = {};
  std::string merges_where = {};
  TokenFiles tokens = {};
};

// Fails with kUnsupported on classes that cut or spell words otherwise, with kCorrupt on files that
// are damaged or do not belong together, naming the line of a merge.
Result<TokenizerParts> build_from_merges(const MergeFiles& files, const TokenizerConfig& config);

}  // namespace jige::text
