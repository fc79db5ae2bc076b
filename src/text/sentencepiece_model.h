// A tokenizer.model through the SentencePiece library.
//
// The library treats each text as one that begins with a space. Text after a special token, and
// text that goes on from earlier text, must not get that space: it is encoded behind a character
// that no piece contains, whose ids are then taken off again.
//
// The library makes a token of a user-defined piece wherever its text stands. Where that piece is a
// special token, text that reached the library shall not become it: it is cut in two.
//
// Threads: immutable once every forbid() is made; const members from any thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"
#include "text/added_tokens.h"

namespace jige::text {

class SentencePieceModel {
 public:
  // From the bytes of a tokenizer.model; `where` names it. Fails with kCorrupt.
  static Result<SentencePieceModel> create(std::string_view bytes, std::string_view where);

  // Appends the ids of a text; at_start says that it begins the whole input, so that a model that
  // adds a space does so. REQUIRES: valid UTF-8.
  Status encode(std::string_view text, bool at_start, std::vector<int32_t>& ids) const;

  // Whether a text may be cut in two before a space behind a letter without changing an
  // id; the right part is a text that goes on. For unigram models but for the rounding of the
  // library's sums of scores, which grows with a text.
  bool cuts(std::string_view text, size_t place) const;

  // No text may become this id any more, if its piece has more than one character.
  void forbid(int32_t id);

  // The texts of all pieces with their ids.
  std::vector<std::pair<std::string, int64_t>> pieces() const;
  // Whether the piece is a control piece, such as <s>, or the unknown piece.
  bool is_special(int32_t id) const;
  // Whether encoding puts a space before the text.
  bool adds_space() const { return adds_space_; }
  // -1 where the model has none.
  int32_t bos_id() const;
  int32_t eos_id() const;
  int32_t pad_id() const;
  int32_t unk_id() const;

 private:
  struct Library;
  SentencePieceModel() = default;
  Status find_separator(std::string_view where);
  Status look_at_spaces();
  Status encode_uncut(std::string_view text, bool at_start, std::vector<int32_t>& ids) const;

  std::shared_ptr<const Library> library_;
  std::string separator_;
  std::vector<int32_t> separator_ids_;
  std::string separator_piece_;  // the last piece of the separator alone
  TokenTrie forbidden_;
  bool adds_space_ = false;
  bool cuts_at_spaces_ = false;  // no piece has a space mark behind another character
};

}  // namespace jige::text
