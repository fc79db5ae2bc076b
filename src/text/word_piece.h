// WordPiece: the model of BERT's tokenizers.
//
// A word becomes the longest piece that it begins with, then the longest that goes on from there,
// which files have with a prefix ("##"), and so on. Where no piece goes on, or the word has more
// characters than a limit, the whole word is one unknown token. That is what Hugging Face
// `tokenizers` does.
//
// Cost: of a word of n characters at most n lookups for each of its pieces; repeated words come
// from a cache.
//
// Threads: immutable once every forbid() is made; each WordPieceScratch belongs to one thread at a
// time.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "text/vocabulary.h"
#include "text/word_cache.h"

namespace jige::text {

struct WordPieceOptions {
  std::string unk_token = "[UNK]";
  std::string prefix = "##";  // of pieces that go on
  int64_t characters_max = 100;
  // Words are raw bytes that stand for their byte-level spelling (byte_level.h).
  bool byte_level = false;
};

struct WordPieceScratch {
  std::string piece;    // with the prefix
  std::string spelled;  // the word
  WordCache cache;
};

class WordPieceModel {
 public:
  // Fails with kCorrupt on a limit below 1.
  static Result<WordPieceModel> create(std::shared_ptr<const Vocabulary> vocabulary,
                                       WordPieceOptions options, std::string_view where);

  // Appends the ids of one word. Fails with kCorrupt where the text needs an unknown token and the
  // vocabulary has none. REQUIRES: valid UTF-8 unless byte_level.
  Status encode(std::string_view word, WordPieceScratch& scratch, std::vector<int32_t>& ids) const;

  // No text may become this id any more, but the unknown token.
  void forbid(int32_t id);

 private:
  WordPieceModel() = default;
  Status encode_new(std::string_view word, WordPieceScratch& scratch,
                    std::vector<int32_t>& ids) const;
  // The longest piece that text from `begin` on begins with, and its end; -1 where there is none.
  int32_t longest(std::string_view word, size_t begin, WordPieceScratch& scratch,
                  size_t& end) const;

  std::shared_ptr<const Vocabulary> vocabulary_;
  std::vector<bool> forbidden_;
  WordPieceOptions options_;
  int32_t unk_id_ = -1;
  std::string where_;
};

}  // namespace jige::text
