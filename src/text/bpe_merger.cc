#include "text/bpe_merger.h"

#include <algorithm>

#include "text/byte_level.h"
#include "text/unicode.h"

namespace jige::text {

bool BpeMerger::Queued::operator<(const Queued& other) const {
  if (count != other.count) return count < other.count;
  if (pair.left != other.pair.left) return pair.left > other.pair.left;
  return pair.right > other.pair.right;
}

BpeMerger::BpeMerger() {
  std::vector<std::pair<char32_t, int>> alphabet;
  for (int byte = 0; byte < 256; ++byte) {
    alphabet.emplace_back(byte_level_character(static_cast<uint8_t>(byte)), byte);
  }
  std::sort(alphabet.begin(), alphabet.end());
  byte_symbols_.resize(256);
  for (const auto& [character, byte] : alphabet) {
    const auto id = static_cast<int32_t>(tokens_.size());
    byte_symbols_[static_cast<size_t>(byte)] = id;
    tokens_.push_back(to_utf8(character));
    symbol_ids_[tokens_.back()] = id;
  }
}

void BpeMerger::add_word(std::string_view bytes, int64_t count) {
  words_.push_back({symbols_.size(), static_cast<uint32_t>(bytes.size()), count});
  for (const char byte : bytes) symbols_.push_back(byte_symbols_[static_cast<uint8_t>(byte)]);
}

BpeMerger::PairState& BpeMerger::state(int32_t left, int32_t right) {
  const uint64_t key = pair_key(left, right);
  if (const uint32_t* index = pair_index_.find(key)) return pairs_[*index];
  pair_index_.set(key, static_cast<uint32_t>(pairs_.size()));
  return pairs_.emplace_back(PairState{{left, right}, 0, {}});
}

void BpeMerger::change(int32_t left, int32_t right, int64_t by, uint32_t word) {
  PairState& pair = state(left, right);
  pair.count += by;
  if (by < 0) return;
  if (pair.words.empty() || pair.words.back() != word) pair.words.push_back(word);
  grown_.push_back(static_cast<uint32_t>(&pair - pairs_.data()));
}

void BpeMerger::queue(uint32_t index) {
  const PairState& pair = pairs_[index];
  if (pair.count <= 0) return;
  heap_.push_back({pair.count, pair.pair, index});
  std::push_heap(heap_.begin(), heap_.end());
}

void BpeMerger::count_pairs() {
  for (uint32_t word = 0; word < words_.size(); ++word) {
    const Word& place = words_[word];
    for (size_t i = 1; i < place.size; ++i) {
      const int32_t* symbols = symbols_.data() + place.begin;
      change(symbols[i - 1], symbols[i], place.count, word);
    }
  }
  grown_.clear();
  for (uint32_t index = 0; index < pairs_.size(); ++index) queue(index);
}

bool BpeMerger::pop_best(int64_t count_min, uint32_t& index) {
  while (!heap_.empty() && heap_.front().count >= count_min) {
    const Queued best = heap_.front();
    std::pop_heap(heap_.begin(), heap_.end());
    heap_.pop_back();
    const int64_t count = pairs_[best.index].count;
    if (count == best.count) {
      index = best.index;
      return true;
    }
    // A count that went up was queued again when it did.
    if (count < best.count) queue(best.index);
  }
  return false;
}

// Two pairs may spell the same token; it is one symbol then.
int32_t BpeMerger::symbol_of(const Pair& pair) {
  std::string text =
      tokens_[static_cast<size_t>(pair.left)] + tokens_[static_cast<size_t>(pair.right)];
  const auto [it, is_new] = symbol_ids_.try_emplace(text, static_cast<int32_t>(tokens_.size()));
  if (is_new) tokens_.push_back(std::move(text));
  return it->second;
}

bool BpeMerger::merge_next(int64_t count_min) {
  uint32_t index = 0;
  if (!pop_best(count_min, index)) return false;
  const Pair pair = pairs_[index].pair;
  const int32_t merged = symbol_of(pair);
  merges_.push_back(pair);
  const std::vector<uint32_t> words = std::move(pairs_[index].words);
  grown_.clear();
  for (const uint32_t word : words) merge_in_word(word, pair, merged);
  pairs_[index].count = 0;
  pairs_[index].words.clear();
  std::sort(grown_.begin(), grown_.end());
  grown_.erase(std::unique(grown_.begin(), grown_.end()), grown_.end());
  for (const uint32_t grown : grown_) queue(grown);
  return true;
}

void BpeMerger::merge_in_word(uint32_t word, const Pair& pair, int32_t merged) {
  Word& place = words_[word];
  int32_t* symbols = symbols_.data() + place.begin;
  uint32_t kept = 0;
  for (uint32_t i = 0; i < place.size;) {
    const bool here = i + 1 < place.size && symbols[i] == pair.left && symbols[i + 1] == pair.right;
    if (!here) {
      symbols[kept++] = symbols[i++];
      continue;
    }
    if (kept > 0) {
      change(symbols[kept - 1], pair.left, -place.count, word);
      change(symbols[kept - 1], merged, place.count, word);
    }
    if (i + 2 < place.size) {
      change(pair.right, symbols[i + 2], -place.count, word);
      change(merged, symbols[i + 2], place.count, word);
    }
    symbols[kept++] = merged;
    i += 2;
  }
  place.size = kept;
}

}  // namespace jige::text
