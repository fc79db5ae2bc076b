#include "text/sentencepiece_model.h"

#include <sentencepiece_processor.h>

#include <algorithm>

#include "text/rank_tokens.h"
#include "text/unicode.h"

namespace jige::text {
namespace {

constexpr char32_t kFirstPrivate = 0xE000;
constexpr char32_t kLastPrivate = 0xE0FF;

bool starts_with(const std::vector<int>& ids, const std::vector<int32_t>& prefix) {
  return ids.size() >= prefix.size() && std::equal(prefix.begin(), prefix.end(), ids.begin());
}

}  // namespace

struct SentencePieceModel::Library {
  sentencepiece::SentencePieceProcessor processor;

  Result<std::vector<int>> encode(std::string_view text) const { return encode_as<int>(text); }

  // As ids (int) or as texts of pieces (std::string).
  template <typename Piece>
  Result<std::vector<Piece>> encode_as(std::string_view text) const {
    try {
      std::vector<Piece> pieces;
      const auto status = processor.Encode({text.data(), text.size()}, &pieces);
      if (!status.ok()) return fail(Code::kInternal, "SentencePiece: {}", status.ToString());
      return pieces;
    } catch (const std::exception& error) {
      return fail(Code::kInternal, "SentencePiece: {}", error.what());
    }
  }
};

Result<SentencePieceModel> SentencePieceModel::create(std::string_view bytes,
                                                      std::string_view where) {
  if (is_rank_list(bytes)) {
    return fail(
        Code::kUnsupported,
        "{}: is a list of tokens and ranks, as tiktoken reads it, not a SentencePiece model; "
        "Jige reads the tokenizer.json that the Hugging Face folder of the model has",
        where);
  }
  auto library = std::make_shared<Library>();
  try {
    const auto status = library->processor.LoadFromSerializedProto({bytes.data(), bytes.size()});
    if (!status.ok()) {
      return fail(Code::kCorrupt, "{}: not a SentencePiece model: {}", where, status.ToString());
    }
  } catch (const std::exception& error) {
    return fail(Code::kCorrupt, "{}: not a SentencePiece model: {}", where, error.what());
  }
  if (library->processor.GetPieceSize() <= 0) {
    return fail(Code::kCorrupt, "{}: the SentencePiece model has no pieces", where);
  }
  SentencePieceModel model;
  model.library_ = std::move(library);
  JIGE_DO(model.find_separator(where));
  JIGE_DO(model.look_at_spaces());
  return model;
}

Status SentencePieceModel::find_separator(std::string_view where) {
  const auto& processor = library_->processor;
  std::vector<bool> used(kLastPrivate - kFirstPrivate + 1, false);
  for (int id = 0; id < processor.GetPieceSize(); ++id) {
    const std::string& piece = processor.IdToPiece(id);
    for (size_t i = 0; i < piece.size();) {
      const Decoded next = decode_utf8(std::string_view(piece).substr(i));
      if (next.code_point >= kFirstPrivate && next.code_point <= kLastPrivate) {
        used[next.code_point - kFirstPrivate] = true;
      }
      i += next.size;
    }
  }
  const auto free = std::find(used.begin(), used.end(), false);
  if (free == used.end()) {
    return fail(Code::kUnsupported, "{}: the pieces use every private character", where);
  }
  separator_ = to_utf8(kFirstPrivate + static_cast<char32_t>(free - used.begin()));
  JIGE_TRY(const std::vector<int> ids, library_->encode(separator_));
  separator_ids_.assign(ids.begin(), ids.end());
  JIGE_TRY(const std::vector<std::string> pieces, library_->encode_as<std::string>(separator_));
  if (!pieces.empty()) separator_piece_ = pieces.back();
  JIGE_TRY(const std::vector<int> letter, library_->encode("a"));
  adds_space_ = !letter.empty() && processor.IdToPiece(letter[0]).starts_with(kSpaceMark);
  return {};
}

Status SentencePieceModel::look_at_spaces() {
  const auto& processor = library_->processor;
  cuts_at_spaces_ = !separator_ids_.empty();
  for (int id = 0; id < processor.GetPieceSize(); ++id) {
    const std::string& piece = processor.IdToPiece(id);
    for (size_t at = piece.find(kSpaceMark); at != piece.npos;
         at = piece.find(kSpaceMark, at + 1)) {
      const bool behind_mark =
          at >= kSpaceMark.size() && std::string_view(piece).substr(0, at).ends_with(kSpaceMark);
      if (at > 0 && !behind_mark) cuts_at_spaces_ = false;
    }
  }
  // A text that goes on must keep its space.
  if (adds_space_) return {};
  JIGE_TRY(const std::vector<std::string> pieces, library_->encode_as<std::string>(" a"));
  if (pieces.empty() || !pieces[0].starts_with(kSpaceMark)) cuts_at_spaces_ = false;
  return {};
}

bool SentencePieceModel::cuts(std::string_view text, size_t place) const {
  // The library takes other characters for spaces, too, and leaves some out.
  const std::string_view left = text.substr(0, place);
  const char32_t before = decode_utf8(left.substr(last_character(left))).code_point;
  const bool stays = before < 0x80 ? before > ' ' && before < 0x7F : is_letter(before);
  return stays && cuts_at_spaces_ && text[place] == ' ' && !forbidden_.touches(text, place);
}

void SentencePieceModel::forbid(int32_t id) {
  const auto& processor = library_->processor;
  // Of control pieces, the unknown piece and bytes the library makes no token by their text.
  if (id < 0 || id >= processor.GetPieceSize() || is_special(id) || processor.IsByte(id)) return;
  const std::string& piece = processor.IdToPiece(id);
  if (count_characters(piece) > 1) forbidden_.add(piece, id);
}

Status SentencePieceModel::encode(std::string_view text, bool at_start,
                                  std::vector<int32_t>& ids) const {
  std::vector<TokenTrie::End> ends;
  for (;;) {
    const size_t place = forbidden_.find(text, 0, ends);
    if (place >= text.size()) return encode_uncut(text, at_start, ids);
    const size_t cut = place + utf8_size(text[place]);
    JIGE_DO(encode_uncut(text.substr(0, cut), at_start, ids));
    text.remove_prefix(cut);
    at_start = false;
  }
}

Status SentencePieceModel::encode_uncut(std::string_view text, bool at_start,
                                        std::vector<int32_t>& ids) const {
  if (text.empty()) return {};
  size_t skip = 0;
  Result<std::vector<int>> encoded;
  if (!at_start && adds_space_) {
    encoded = library_->encode(separator_ + std::string(text));
    if (encoded && starts_with(*encoded, separator_ids_)) skip = separator_ids_.size();
    if (skip > 0 && separator_ids_.back() == unk_id()) {
      // A run of unknown characters is one token; that of the text may have joined the separator.
      JIGE_TRY(const std::vector<std::string> pieces,
               library_->encode_as<std::string>(separator_ + std::string(text)));
      if (pieces.size() >= skip && pieces[skip - 1] != separator_piece_) --skip;
      ids.insert(ids.end(), encoded->begin() + static_cast<std::ptrdiff_t>(skip), encoded->end());
      return {};
    }
  }
  // Where a normalizer removes the separator, the space stays.
  if (skip == 0) encoded = library_->encode(text);
  if (!encoded) return tl::unexpected<Error>(std::move(encoded.error()));
  ids.insert(ids.end(), encoded->begin() + static_cast<std::ptrdiff_t>(skip), encoded->end());
  return {};
}

std::vector<std::pair<std::string, int64_t>> SentencePieceModel::pieces() const {
  std::vector<std::pair<std::string, int64_t>> list;
  for (int id = 0; id < library_->processor.GetPieceSize(); ++id) {
    list.emplace_back(replace_invalid_utf8(library_->processor.IdToPiece(id)), id);
  }
  return list;
}

bool SentencePieceModel::is_special(int32_t id) const {
  const auto& processor = library_->processor;
  if (id < 0 || id >= processor.GetPieceSize()) return false;
  return processor.IsControl(id) || processor.IsUnknown(id);
}

int32_t SentencePieceModel::bos_id() const { return library_->processor.bos_id(); }
int32_t SentencePieceModel::eos_id() const { return library_->processor.eos_id(); }
int32_t SentencePieceModel::pad_id() const { return library_->processor.pad_id(); }
int32_t SentencePieceModel::unk_id() const { return library_->processor.unk_id(); }

}  // namespace jige::text
