#include "text/word_cache.h"

#include "text/hash.h"

namespace jige::text {
namespace {

constexpr size_t kSlots = size_t{1} << 16;
constexpr size_t kWordsMax = kSlots / 2;
constexpr size_t kArenaBytesMax = size_t{1} << 20;

}  // namespace

WordCache::WordCache() : slots_(kSlots) {}

size_t WordCache::position(uint64_t hash, std::string_view word) const {
  size_t i = hash & (kSlots - 1);
  for (;; i = (i + 1) & (kSlots - 1)) {
    const Slot& slot = slots_[i];
    if (slot.generation != generation_) return i;
    if (slot.hash == hash && slot.word_size == word.size() &&
        std::string_view(words_).substr(slot.word_begin, slot.word_size) == word) {
      return i;
    }
  }
}

std::optional<std::span<const int32_t>> WordCache::find(std::string_view word) const {
  if (word.size() > kWordBytesMax) return std::nullopt;
  const Slot& slot = slots_[position(hash_bytes(word), word)];
  if (slot.generation != generation_) return std::nullopt;
  return std::span(ids_).subspan(slot.ids_begin, slot.ids_size);
}

void WordCache::put(std::string_view word, std::span<const int32_t> ids) {
  if (word.size() > kWordBytesMax || ids.size() > UINT16_MAX) return;
  if (count_ >= kWordsMax || words_.size() >= kArenaBytesMax) {
    ++generation_;
    count_ = 0;
    words_.clear();
    ids_.clear();
  }
  const uint64_t hash = hash_bytes(word);
  Slot& slot = slots_[position(hash, word)];
  if (slot.generation == generation_) return;
  slot = {hash,
          static_cast<uint32_t>(words_.size()),
          static_cast<uint32_t>(ids_.size()),
          static_cast<uint16_t>(word.size()),
          static_cast<uint16_t>(ids.size()),
          generation_};
  words_.append(word);
  ids_.insert(ids_.end(), ids.begin(), ids.end());
  ++count_;
}

}  // namespace jige::text
