// What models of tokens do around the ids of one word: those that are remembered, and its spelling.
// Threads: those of the scratch.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "text/byte_level.h"

namespace jige::text {

// Appends the ids of a word: those that scratch.cache remembers, else those that
// encode_new(spelled, scratch, ids) appends, which it remembers then. `byte_level`: the word is raw
// bytes and `spelled` their byte-level spelling; else it is the word.
template <typename Scratch, typename EncodeNew>
Status encode_word(std::string_view word, bool byte_level, Scratch& scratch,
                   std::vector<int32_t>& ids, EncodeNew&& encode_new) {
  if (word.empty()) return {};
  if (const auto known = scratch.cache.find(word)) {
    ids.insert(ids.end(), known->begin(), known->end());
    return {};
  }
  const size_t before = ids.size();
  std::string_view spelled = word;
  if (byte_level) {
    scratch.spelled.clear();
    append_byte_level(scratch.spelled, word);
    spelled = scratch.spelled;
  }
  JIGE_DO(encode_new(spelled, scratch, ids));
  scratch.cache.put(word, std::span(ids).subspan(before));
  return {};
}

}  // namespace jige::text
