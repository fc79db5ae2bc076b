// Byte-pair encoding: the model of a tokenizer.
//
// A word starts as one symbol per character. While some neighbouring pair has a merge, the pair
// with the lowest rank (the leftmost of equals) becomes one symbol. Characters outside the
// vocabulary become their bytes' tokens <0x..> (byte_fallback), or the unknown token, or nothing
// where there is none; that is also what Hugging Face does.
//
// Cost: O(n log n) for a word of n characters through a heap; short words scan for the minimum;
// repeated words come from a cache. Where no character is left out and whole words are not looked
// up (ignore_merges), a text without pre-tokenizer is cut at every "▁" that no merge joins with the
// character before it, which changes no id and makes it words again.
//
// Threads: immutable; each BpeScratch belongs to one thread at a time.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"
#include "text/hash.h"
#include "text/text_pairs.h"
#include "text/vocabulary.h"
#include "text/word_cache.h"

namespace jige::text {

struct BpeOptions {
  bool byte_fallback = false;
  bool fuse_unk = false;
  // A word that is itself in the vocabulary is that token, whatever the merges say.
  bool ignore_merges = false;
  // Words are raw bytes that stand for their byte-level spelling (byte_level.h).
  bool byte_level = false;
  std::string unk_token = {};
};

struct BpeScratch {
  struct Symbol {
    int32_t id;
    int32_t previous;  // -1 at the start; -2 marks a symbol merged away
    int32_t next;
  };
  std::vector<Symbol> symbols;
  std::vector<uint64_t> heap;
  std::vector<uint32_t> ranks;
  std::vector<int32_t> ids;
  std::string spelled;
  WordCache cache;
};

class BpeModel {
 public:
  // `merges` in order of rank. Fails with kCorrupt where a merge names a token outside the
  // vocabulary.
  static Result<BpeModel> create(std::shared_ptr<const Vocabulary> vocabulary,
                                 const TextPairs& merges, BpeOptions options,
                                 std::string_view where);

  // As tiktoken merges: any two tokens whose texts, joined, are a token, at the rank of its id; and
  // a word that is a token is that token. Words are raw bytes, tokens spelled in the byte-level
  // alphabet. REQUIRES: every byte is a token.
  static BpeModel create_from_ranks(std::shared_ptr<const Vocabulary> vocabulary,
                                    std::string_view where);

  // Appends the ids of one word. Fails with kCorrupt where the text needs an unknown token that the
  // vocabulary lacks. REQUIRES: below 2^30 bytes; valid UTF-8 unless byte_level.
  Status encode(std::string_view word, BpeScratch& scratch, std::vector<int32_t>& ids) const;

  // Whether a word may be cut in two at a place behind its beginning without changing an id: no
  // merge joins what meets there. REQUIRES: a character begins there.
  bool cuts(std::string_view word, size_t place) const;

  // Ids that no plain text may become through ignore_merges: the special tokens.
  void forbid(int32_t id) { forbidden_.set(static_cast<uint64_t>(id), true); }

 private:
  struct Merge {
    uint32_t rank;
    int32_t id;
  };
  static constexpr uint32_t kNoRank = UINT32_MAX;

  BpeModel() = default;
  Status read_merges(const TextPairs& merges);
  void read_ranks();
  void build_character_table();
  std::optional<std::string_view> symbol_text(std::string_view character) const;
  int32_t character_id(std::string_view character) const;
  // Where a word may be cut before a space mark, or npos.
  size_t find_space_mark_cut(std::string_view word) const;
  Status encode_uncut(std::string_view word, BpeScratch& scratch, std::vector<int32_t>& ids) const;
  Status encode_new(std::string_view word, BpeScratch& scratch, std::vector<int32_t>& ids) const;
  Status split_characters(std::string_view word, std::vector<int32_t>& ids) const;
  bool append_bytes(std::string_view character, std::vector<int32_t>& ids) const;
  void merge_short(std::vector<int32_t>& ids, std::vector<uint32_t>& ranks) const;
  void merge_long(BpeScratch& scratch) const;
  void push_pair(BpeScratch& scratch, int32_t left) const;
  uint32_t rank(int32_t left, int32_t right) const {
    const Merge* merge = merges_.find(pair_key(left, right));
    return merge ? merge->rank : kNoRank;
  }

  std::shared_ptr<const Vocabulary> vocabulary_;
  FlatMap<Merge> merges_;
  FlatMap<bool> forbidden_;
  FlatMap<bool> meetings_;  // of a last and a first character that some merge brings together
  // Ids of the characters below U+0800, which covers byte-level spelling; -1 where there is none.
  std::array<int32_t, 0x800> character_ids_{};
  std::array<int32_t, 256> byte_ids_{};
  bool has_all_bytes_ = false;
  int32_t unk_id_ = -1;
  bool cut_before_space_mark_ = false;
  bool joins_space_mark_ = false;  // some merge joins another character with a space mark
  BpeOptions options_;
  std::string where_;
};

}  // namespace jige::text
