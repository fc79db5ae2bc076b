#include "text/word_cache.h"

#include "text/hash.h"

namespace jige::text {
namespace {

constexpr size_t kSlotsMin = size_t{1} << 8;  // most texts are short
constexpr size_t kSlotsMax = size_t{1} << 16;
constexpr size_t kGrowth = 4;
constexpr size_t kArenaBytesMax = size_t{1} << 20;

}  // namespace

WordCache::WordCache() : slots_(kSlotsMin) {}

size_t WordCache::position(uint64_t hash, std::string_view word) const {
  const size_t mask = slots_.size() - 1;
  for (size_t i = hash & mask;; i = (i + 1) & mask) {
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

void WordCache::make_room() {
  const bool half_full = count_ >= slots_.size() / 2;
  if (half_full && slots_.size() < kSlotsMax) return grow();
  if (!half_full && words_.size() < kArenaBytesMax) return;
  ++generation_;
  count_ = 0;
  words_.clear();
  ids_.clear();
}

void WordCache::grow() {
  std::vector<Slot> old(slots_.size() * kGrowth);
  old.swap(slots_);
  const size_t mask = slots_.size() - 1;
  for (const Slot& slot : old) {
    if (slot.generation != generation_) continue;
    size_t i = slot.hash & mask;  // all words differ
    while (slots_[i].generation == generation_) i = (i + 1) & mask;
    slots_[i] = slot;
  }
}

void WordCache::put(std::string_view word, std::span<const int32_t> ids) {
  if (word.size() > kWordBytesMax || ids.size() > UINT16_MAX) return;
  make_room();
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
