// A fast hash of short byte strings and a flat hash map from integers, for the inner loops of
// encoding.
//
// Threads: values; const members from any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>
#include <vector>

namespace jige::text {

inline uint64_t mix(uint64_t a, uint64_t b) {
  const auto product = static_cast<unsigned __int128>(a) * b;
  return static_cast<uint64_t>(product) ^ static_cast<uint64_t>(product >> 64);
}

// Not for hostile keys in unbounded tables: the tables here are bounded.
inline uint64_t hash_bytes(std::string_view text) {
  constexpr uint64_t kA = 0x9E3779B97F4A7C15ull, kB = 0xD6E8FEB86659FD93ull;
  uint64_t hash = kA ^ text.size();
  const char* p = text.data();
  size_t left = text.size();
  for (; left >= 8; left -= 8, p += 8) {
    uint64_t block;
    std::memcpy(&block, p, 8);
    hash = mix(hash ^ block, kB);
  }
  uint64_t tail = 0;
  if (left > 0) std::memcpy(&tail, p, left);
  return mix(hash ^ tail, kA);
}

// Open addressing from 64-bit keys to values of type V. The key ~0 is reserved.
template <typename V>
class FlatMap {
 public:
  explicit FlatMap(size_t expected = 0) {
    size_t capacity = 16;
    while (capacity < expected * 2) capacity *= 2;
    slots_.resize(capacity);
  }

  // Inserts or replaces.
  void set(uint64_t key, const V& value) {
    if ((count_ + 1) * 2 > slots_.size()) grow();
    Slot& slot = slots_[position(key)];
    if (slot.key == kEmpty) ++count_;
    slot = {key, value};
  }

  // The value, or nullptr.
  const V* find(uint64_t key) const {
    const Slot& slot = slots_[position(key)];
    return slot.key == kEmpty ? nullptr : &slot.value;
  }
  V* find(uint64_t key) {
    Slot& slot = slots_[position(key)];
    return slot.key == kEmpty ? nullptr : &slot.value;
  }

  size_t size() const { return count_; }

 private:
  static constexpr uint64_t kEmpty = ~uint64_t{0};
  struct Slot {
    uint64_t key = kEmpty;
    V value{};
  };

  size_t position(uint64_t key) const {
    const size_t mask = slots_.size() - 1;
    size_t i = mix(key ^ 0x9E3779B97F4A7C15ull, 0xD6E8FEB86659FD93ull) & mask;
    while (slots_[i].key != kEmpty && slots_[i].key != key) i = (i + 1) & mask;
    return i;
  }

  void grow() {
    std::vector<Slot> old(slots_.size() * 2);
    old.swap(slots_);
    for (const Slot& slot : old) {
      if (slot.key != kEmpty) slots_[position(slot.key)] = slot;
    }
  }

  std::vector<Slot> slots_;
  size_t count_ = 0;
};

inline uint64_t pair_key(int32_t left, int32_t right) {
  return static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32 | static_cast<uint32_t>(right);
}

}  // namespace jige::text
