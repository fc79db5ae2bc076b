#include "text/bpe.h"

#include <algorithm>
#include <array>
#include <functional>
#include <span>

#include "text/byte_level.h"
#include "text/encode_word.h"
#include "text/unicode.h"

namespace jige::text {
namespace {

constexpr size_t kShortSymbols = 40;

// Of the last character of one text and the first of another.
uint64_t meeting_key(std::string_view left, std::string_view right) {
  const char32_t last = decode_utf8(left.substr(last_character(left))).code_point;
  return uint64_t{last} << 32 | decode_utf8(right).code_point;
}

}  // namespace

Result<BpeModel> BpeModel::create(std::shared_ptr<const Vocabulary> vocabulary,
                                  const TextPairs& merges, BpeOptions options,
                                  std::string_view where) {
  BpeModel model;
  model.vocabulary_ = std::move(vocabulary);
  model.where_ = where;
  if (!options.unk_token.empty()) model.unk_id_ = model.vocabulary_->find(options.unk_token);
  model.options_ = std::move(options);
  model.build_character_table();
  JIGE_DO(model.read_merges(merges));
  // Characters that vanish would bring space marks together, and with ignore_merges it matters what
  // a whole word is.
  const bool keeps_all =
      !model.options_.unk_token.empty() || (model.options_.byte_fallback && model.has_all_bytes_);
  model.cut_before_space_mark_ = keeps_all && !model.options_.ignore_merges &&
                                 !model.options_.byte_level &&
                                 model.vocabulary_->find(kSpaceMark) >= 0;
  return model;
}

BpeModel BpeModel::create_from_ranks(std::shared_ptr<const Vocabulary> vocabulary,
                                     std::string_view where) {
  BpeModel model;
  model.vocabulary_ = std::move(vocabulary);
  model.where_ = where;
  model.options_ = {.ignore_merges = true, .byte_level = true};
  model.build_character_table();
  model.read_ranks();
  return model;
}

void BpeModel::read_ranks() {
  for (int32_t id = 0; id < vocabulary_->size(); ++id) {
    if (!vocabulary_->contains(id)) continue;
    const std::string_view token = vocabulary_->token(id);
    for (size_t cut = utf8_size(token[0]); cut < token.size(); cut += utf8_size(token[cut])) {
      const int32_t left = vocabulary_->find(token.substr(0, cut));
      const int32_t right = left < 0 ? -1 : vocabulary_->find(token.substr(cut));
      if (right >= 0) merges_.set(pair_key(left, right), {static_cast<uint32_t>(id), id});
    }
  }
}

Status BpeModel::read_merges(const TextPairs& merges) {
  merges_ = FlatMap<Merge>(merges.size());
  constexpr size_t kAtOnce = 32;
  std::array<std::string_view, 3 * kAtOnce> texts;
  std::array<int32_t, 3 * kAtOnce> ids;
  for (size_t first = 0; first < merges.size(); first += kAtOnce) {
    const size_t count = std::min(kAtOnce, merges.size() - first);
    for (size_t i = 0; i < count; ++i) {
      texts[3 * i] = merges.left(first + i);
      texts[3 * i + 1] = merges.right(first + i);
      texts[3 * i + 2] = merges.joined(first + i);
    }
    vocabulary_->find_all(std::span(texts).first(3 * count), ids);
    for (size_t i = 0; i < 3 * count; ++i) {
      if (ids[i] >= 0) continue;
      return fail(Code::kCorrupt,
                  "{}: merge {} needs the token \"{}\", which is not in the vocabulary", where_,
                  first + i / 3, texts[i]);
    }
    for (size_t i = 0; i < count; ++i) {
      const std::string_view left = texts[3 * i];
      const std::string_view right = texts[3 * i + 1];
      merges_.set(pair_key(ids[3 * i], ids[3 * i + 1]),
                  {static_cast<uint32_t>(first + i), ids[3 * i + 2]});
      if (left.empty() || right.empty() || options_.ignore_merges) continue;
      meetings_.set(meeting_key(left, right), true);
      joins_space_mark_ |= right.starts_with(kSpaceMark) && !left.ends_with(kSpaceMark);
    }
  }
  return {};
}

void BpeModel::build_character_table() {
  for (char32_t c = 0; c < character_ids_.size(); ++c) {
    character_ids_[c] = vocabulary_->find(to_utf8(c));
  }
  has_all_bytes_ = true;
  for (int byte = 0; byte < 256; ++byte) {
    const int32_t id = vocabulary_->find(fmt::format("<0x{:02X}>", byte));
    byte_ids_[static_cast<size_t>(byte)] = id;
    has_all_bytes_ = has_all_bytes_ && id >= 0;
  }
}

int32_t BpeModel::character_id(std::string_view character) const {
  const auto lead = static_cast<uint8_t>(character[0]);
  if (lead < 0x80) return character_ids_[lead];
  if (character.size() == 2) {
    return character_ids_[static_cast<size_t>((lead & 0x1F) << 6 | (character[1] & 0x3F))];
  }
  return vocabulary_->find(character);
}

// What the text of the symbol begins and ends with that a character starts as; of the symbols of
// its bytes, where it becomes those.
std::optional<std::string_view> BpeModel::symbol_text(std::string_view character) const {
  if (character_id(character) >= 0) return character;
  if (!options_.byte_fallback || !has_all_bytes_) return std::nullopt;
  return "<0x00>";
}

bool BpeModel::cuts(std::string_view word, size_t place) const {
  // What a whole word is matters where it may be a token whatever the merges say.
  if (options_.ignore_merges) return false;
  const std::string_view before = word.substr(0, place);
  std::string left;
  std::string right;
  if (options_.byte_level) {
    append_byte_level(left, before.substr(place - 1));
    append_byte_level(right, word.substr(place, 1));
  } else {
    left = before.substr(last_character(before));
    right = word.substr(place, utf8_size(word[place]));
  }
  // Unknown characters join others like them, or vanish.
  const auto last = symbol_text(left);
  const auto first = symbol_text(right);
  return last && first && !meetings_.find(meeting_key(*last, *first));
}

size_t BpeModel::find_space_mark_cut(std::string_view word) const {
  for (size_t cut = word.find(kSpaceMark, 1); cut != word.npos;
       cut = word.find(kSpaceMark, cut + 1)) {
    const std::string_view before = word.substr(0, cut);
    if (before.ends_with(kSpaceMark)) continue;
    if (!joins_space_mark_) return cut;
    const auto last = symbol_text(before.substr(last_character(before)));
    const std::string_view symbol = last ? *last : std::string_view(options_.unk_token);
    if (!meetings_.find(meeting_key(symbol, kSpaceMark))) return cut;
  }
  return word.npos;
}

Status BpeModel::encode(std::string_view word, BpeScratch& scratch,
                        std::vector<int32_t>& ids) const {
  if (!cut_before_space_mark_) return encode_uncut(word, scratch, ids);
  while (!word.empty()) {
    const size_t cut = find_space_mark_cut(word);
    JIGE_DO(encode_uncut(word.substr(0, cut), scratch, ids));
    if (cut == word.npos) break;
    word.remove_prefix(cut);
  }
  return {};
}

Status BpeModel::encode_uncut(std::string_view word, BpeScratch& scratch,
                              std::vector<int32_t>& ids) const {
  const auto encode = [this](auto&&... args) { return encode_new(args...); };
  return encode_word(word, options_.byte_level, scratch, ids, encode);
}

Status BpeModel::encode_new(std::string_view word, BpeScratch& scratch,
                            std::vector<int32_t>& ids) const {
  if (options_.ignore_merges) {
    const int32_t id = vocabulary_->find(word);
    if (id >= 0 && !forbidden_.find(static_cast<uint64_t>(id))) {
      ids.push_back(id);
      return {};
    }
  }
  scratch.ids.clear();
  JIGE_DO(split_characters(word, scratch.ids));
  if (scratch.ids.size() <= kShortSymbols) {
    merge_short(scratch.ids, scratch.ranks);
  } else {
    merge_long(scratch);
  }
  ids.insert(ids.end(), scratch.ids.begin(), scratch.ids.end());
  return {};
}

bool BpeModel::append_bytes(std::string_view character, std::vector<int32_t>& ids) const {
  const auto id = [&](char byte) { return byte_ids_[static_cast<uint8_t>(byte)]; };
  if (!has_all_bytes_ &&
      std::any_of(character.begin(), character.end(), [&](char byte) { return id(byte) < 0; })) {
    return false;
  }
  for (const char byte : character) ids.push_back(id(byte));
  return true;
}

Status BpeModel::split_characters(std::string_view word, std::vector<int32_t>& ids) const {
  // An unknown token waits until the next known character, so that a run can become one.
  bool unk_waits = false;
  for (size_t i = 0; i < word.size();) {
    const std::string_view character = word.substr(i, utf8_size(word[i]));
    i += character.size();
    const int32_t id = character_id(character);
    if (id >= 0) {
      if (unk_waits) ids.push_back(unk_id_);
      unk_waits = false;
      ids.push_back(id);
      continue;
    }
    if (options_.byte_fallback && append_bytes(character, ids)) continue;
    if (options_.unk_token.empty()) continue;
    if (unk_id_ < 0) {
      return fail(Code::kCorrupt,
                  "{}: the text needs the unknown token \"{}\", not in the vocabulary", where_,
                  options_.unk_token);
    }
    if (unk_waits && !options_.fuse_unk) ids.push_back(unk_id_);
    unk_waits = true;
  }
  if (unk_waits) ids.push_back(unk_id_);
  return {};
}

void BpeModel::merge_short(std::vector<int32_t>& ids, std::vector<uint32_t>& ranks) const {
  if (ids.size() < 2) return;
  ranks.resize(ids.size() - 1);
  for (size_t i = 0; i + 1 < ids.size(); ++i) ranks[i] = rank(ids[i], ids[i + 1]);
  while (!ranks.empty()) {
    const auto best = std::min_element(ranks.begin(), ranks.end());
    if (*best == kNoRank) return;
    const auto at = best - ranks.begin();
    const auto left = static_cast<size_t>(at);
    ids[left] = merges_.find(pair_key(ids[left], ids[left + 1]))->id;
    ids.erase(ids.begin() + at + 1);
    ranks.erase(best);
    if (left > 0) ranks[left - 1] = rank(ids[left - 1], ids[left]);
    if (left < ranks.size()) ranks[left] = rank(ids[left], ids[left + 1]);
  }
}

// Queues the pair that begins at symbol `left`, as rank and position in one number.
void BpeModel::push_pair(BpeScratch& scratch, int32_t left) const {
  const auto& symbol = scratch.symbols[static_cast<size_t>(left)];
  if (symbol.next < 0) return;
  const uint32_t found = rank(symbol.id, scratch.symbols[static_cast<size_t>(symbol.next)].id);
  if (found == kNoRank) return;
  scratch.heap.push_back(uint64_t{found} << 32 | static_cast<uint32_t>(left));
  std::push_heap(scratch.heap.begin(), scratch.heap.end(), std::greater<>());
}

void BpeModel::merge_long(BpeScratch& scratch) const {
  auto& symbols = scratch.symbols;
  auto& heap = scratch.heap;
  const auto count = static_cast<int32_t>(scratch.ids.size());
  symbols.clear();
  heap.clear();
  for (int32_t i = 0; i < count; ++i) {
    symbols.push_back({scratch.ids[static_cast<size_t>(i)], i - 1, i + 1 < count ? i + 1 : -1});
  }
  for (int32_t i = 0; i + 1 < count; ++i) push_pair(scratch, i);
  while (!heap.empty()) {
    std::pop_heap(heap.begin(), heap.end(), std::greater<>());
    const auto left = static_cast<int32_t>(heap.back() & UINT32_MAX);
    const auto queued_rank = static_cast<uint32_t>(heap.back() >> 32);
    heap.pop_back();
    auto& symbol = symbols[static_cast<size_t>(left)];
    if (symbol.previous == -2 || symbol.next < 0) continue;
    auto& right = symbols[static_cast<size_t>(symbol.next)];
    const Merge* merge = merges_.find(pair_key(symbol.id, right.id));
    // The pair may have changed since it was queued.
    if (!merge || merge->rank != queued_rank) continue;
    symbol.id = merge->id;
    symbol.next = right.next;
    right.previous = -2;
    if (symbol.next >= 0) symbols[static_cast<size_t>(symbol.next)].previous = left;
    if (symbol.previous >= 0) push_pair(scratch, symbol.previous);
    push_pair(scratch, left);
  }
  scratch.ids.clear();
  for (int32_t i = 0; i >= 0; i = symbols[static_cast<size_t>(i)].next) {
    scratch.ids.push_back(symbols[static_cast<size_t>(i)].id);
  }
}

}  // namespace jige::text
