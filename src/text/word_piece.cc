#include "text/word_piece.h"

#include <utility>

#include "text/encode_word.h"
#include "text/unicode.h"

namespace jige::text {

Result<WordPieceModel> WordPieceModel::create(std::shared_ptr<const Vocabulary> vocabulary,
                                              WordPieceOptions options, std::string_view where) {
  if (options.characters_max < 1) {
    return fail(Code::kCorrupt, "{}: \"max_input_chars_per_word\" is {}; it must be positive",
                where, options.characters_max);
  }
  WordPieceModel model;
  model.unk_id_ = vocabulary->find(options.unk_token);
  model.forbidden_.resize(static_cast<size_t>(vocabulary->size()));
  model.vocabulary_ = std::move(vocabulary);
  model.options_ = std::move(options);
  model.where_ = where;
  return model;
}

void WordPieceModel::forbid(int32_t id) {
  if (vocabulary_->contains(id)) forbidden_[static_cast<size_t>(id)] = true;
}

Status WordPieceModel::encode(std::string_view word, WordPieceScratch& scratch,
                              std::vector<int32_t>& ids) const {
  const auto encode = [this](auto&&... args) { return encode_new(args...); };
  return encode_word(word, options_.byte_level, scratch, ids, encode);
}

int32_t WordPieceModel::longest(std::string_view word, size_t begin, WordPieceScratch& scratch,
                                size_t& end) const {
  std::string& piece = scratch.piece;
  piece = begin > 0 ? options_.prefix : std::string();
  const size_t text_begin = piece.size();
  piece.append(word.substr(begin));
  while (piece.size() > text_begin) {
    const int32_t id = vocabulary_->find(piece);
    if (id >= 0 && !forbidden_[static_cast<size_t>(id)]) {
      end = begin + piece.size() - text_begin;
      return id;
    }
    piece.resize(text_begin + last_character(std::string_view(piece).substr(text_begin)));
  }
  return -1;
}

Status WordPieceModel::encode_new(std::string_view word, WordPieceScratch& scratch,
                                  std::vector<int32_t>& ids) const {
  const size_t before = ids.size();
  bool known = static_cast<int64_t>(count_characters(word)) <= options_.characters_max;
  for (size_t at = 0; known && at < word.size();) {
    const int32_t id = longest(word, at, scratch, at);
    known = id >= 0;
    if (known) ids.push_back(id);
  }
  if (known) return {};
  ids.resize(before);
  if (unk_id_ < 0) {
    return fail(Code::kCorrupt,
                "{}: the text needs an unknown token, and the vocabulary has no \"{}\"", where_,
                options_.unk_token);
  }
  ids.push_back(unk_id_);
  return {};
}

}  // namespace jige::text
