// BertNormalizer of a tokenizer.json: what BERT does to texts before they are cut into words.
//
// In this order: control characters go and white space becomes spaces (clean_text); spaces come
// around Chinese characters (handle_chinese_chars); characters are taken apart and their accents go
// (strip_accents; as lowercase says where it is null); capitals become small letters (lowercase).
// Threads: pure functions.
#pragma once

#include <string>
#include <string_view>

#include "base/json.h"
#include "base/result.h"

namespace jige::text {

struct BertChanges {
  bool cleans = true;
  bool spaces_chinese = true;
  bool strips_accents = true;
  bool lowers = true;
};

// Fails with kCorrupt on fields that are no truth values.
Result<BertChanges> bert_changes(const Json& component, std::string_view where);

// REQUIRES: valid UTF-8.
std::string normalize_as_bert(std::string_view text, const BertChanges& changes);

}  // namespace jige::text
