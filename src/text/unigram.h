// Unigram: the model of a tokenizer whose pieces have scores, as SentencePiece trains it.
//
// A word becomes the pieces whose scores have the largest sum, added up from the beginning in
// double precision; of equals the path whose last piece is the longest. A character that is no
// piece by itself may be unknown, for 10 less than the lowest score. Neighbouring unknown
// characters become the tokens of their bytes <0x..>, where the model falls back to them and has
// them all, or one unknown token. That is what Hugging Face `tokenizers` does; SentencePiece sums
// in single precision.
//
// Cost: for each character the length of the longest piece that begins there; repeated words come
// from a cache.
//
// Threads: immutable once every forbid() is made; each UnigramScratch belongs to one thread at a
// time.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "text/added_tokens.h"
#include "text/vocabulary.h"
#include "text/word_cache.h"

namespace jige::text {

struct UnigramOptions {
  int32_t unk_id = -1;  // -1: none
  bool byte_fallback = false;
  // Words are raw bytes that stand for their byte-level spelling (byte_level.h).
  bool byte_level = false;
};

struct UnigramScratch {
  // The best way to a place in the word: the piece that ends there.
  struct Place {
    double score = 0;
    uint32_t begin = UINT32_MAX;  // of the piece; UINT32_MAX where no way leads
    int32_t id = -1;
  };
  std::vector<Place> places;
  std::vector<TokenTrie::End> ends;
  std::vector<uint32_t> path;
  std::string spelled;
  WordCache cache;
};

class UnigramModel {
 public:
  // A score for each id of the vocabulary. Fails with kCorrupt where there are more or fewer, or
  // the unknown token is not in the vocabulary, and with kUnsupported on a piece of more than 4096
  // bytes.
  static Result<UnigramModel> create(std::shared_ptr<const Vocabulary> vocabulary,
                                     const std::vector<double>& scores, UnigramOptions options,
                                     std::string_view where);

  // Appends the ids of one word. Fails with kCorrupt where the text needs an unknown token and the
  // model has none. REQUIRES: below 2^30 bytes; valid UTF-8 unless byte_level.
  Status encode(std::string_view word, UnigramScratch& scratch, std::vector<int32_t>& ids) const;

  // No text may become this id any more, if its piece has more than one character.
  void forbid(int32_t id);

 private:
  UnigramModel() = default;
  Status find_best(std::string_view word, UnigramScratch& scratch) const;
  Status encode_new(std::string_view word, UnigramScratch& scratch,
                    std::vector<int32_t>& ids) const;
  Status append_unknown(std::string_view text, std::vector<int32_t>& ids) const;
  tl::unexpected<Error> no_unknown_token() const;

  std::shared_ptr<const Vocabulary> vocabulary_;
  TokenTrie pieces_;
  std::vector<double> scores_;  // by id
  std::vector<bool> forbidden_;
  double unk_score_ = 0;
  UnigramOptions options_;
  std::string where_;
};

}  // namespace jige::text
