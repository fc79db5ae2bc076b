// Added tokens: texts such as "<|im_end|>" that are one token wherever they stand.
//
// Tokens with normalized = false are looked for in the raw text, the others in the normalized text
// of what is left. At each place the longest token wins; lstrip and rstrip take the white space
// beside it along, single_word tokens need a non-word neighbour on both sides.
//
// Threads: immutable after freeze(); const members from any thread.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/result.h"
#include "text/hash.h"
#include "text/normalizer.h"

namespace jige::text {

struct AddedToken {
  std::string content;
  int32_t id = -1;
  bool special = false;
  bool single_word = false;
  bool lstrip = false;
  bool rstrip = false;
  bool normalized = true;
  // What decoding writes: the content, normalized if the token is. Set by AddedTokens.
  std::string shown = {};
};

// Finds which of a set of texts stands at a place. A trie; cost per place is the longest match.
class TokenTrie {
 public:
  // REQUIRES: text is not empty. A text given twice keeps the later value.
  void add(std::string_view text, int32_t value);
  bool empty() const { return values_.size() <= 1; }

  // The first place at or after `from` where some text stands; `ends` receives the ends of all
  // texts there with their values, shortest first. text.size() when there is none.
  struct End {
    size_t end;
    int32_t value;
  };
  size_t find(std::string_view text, size_t from, std::vector<End>& ends) const;
  // Appends to `ends` the texts that stand at a place.
  void find_at(std::string_view text, size_t begin, std::vector<End>& ends) const;
  // Whether some text stands around a place, or ends or begins there.
  bool touches(std::string_view text, size_t place) const;
  // The bytes of the longest text.
  size_t longest_bytes() const { return longest_bytes_; }

 private:
  size_t longest_bytes_ = 0;
  std::vector<int32_t> values_ = {-1};  // by node; -1 where no text ends
  FlatMap<uint32_t> children_;          // (node, byte) -> node
  std::array<bool, 256> first_{};
};

// A stretch of text: a token, or (id -1) text between tokens.
struct Section {
  size_t begin = 0;
  size_t end = 0;
  int32_t id = -1;
};

struct SectionOptions {
  bool allow_special = true;
  std::span<const size_t> guards = {};
};

class AddedTokens {
 public:
  // Adds or replaces by content. Fails with kCorrupt on an id outside 0..kTokenIdMax, kUnsupported
  // on a content longer than 4096 bytes. An empty content is ignored.
  Status add(AddedToken token, std::string_view where);
  // Ends adding; contents of normalized tokens go through the normalizer, too.
  Status freeze(const Normalizer& normalizer);

  // Cuts raw text at tokens with normalized = false.
  void split_raw(std::string_view text, const SectionOptions& options,
                 std::vector<Section>& out) const {
    split(raw_, text, options, out);
  }
  // Cuts normalized text at tokens with normalized = true. Guards do not apply to it.
  void split_normalized(std::string_view text, bool allow_special,
                        std::vector<Section>& out) const {
    split(normalized_, text, {.allow_special = allow_special}, out);
  }

  // The texts that either looks for.
  const TokenTrie& raw() const { return raw_; }
  const TokenTrie& normalized() const { return normalized_; }

  // By id or content; nullptr where there is none.
  const AddedToken* find(int32_t id) const;
  const AddedToken* find(std::string_view content) const;
  // All tokens by ascending id.
  std::vector<const AddedToken*> all() const;
  // One more than the largest id, 0 without tokens.
  int32_t size() const;

 private:
  void split(const TokenTrie& trie, std::string_view text, const SectionOptions& options,
             std::vector<Section>& out) const;

  std::map<int32_t, AddedToken> by_id_;
  std::unordered_map<std::string, int32_t> by_content_;
  TokenTrie raw_;
  TokenTrie normalized_;
};

}  // namespace jige::text
