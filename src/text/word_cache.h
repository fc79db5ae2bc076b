// Remembers the ids of short words, in bounded memory. It grows with what it is told; when it may
// grow no more it forgets everything, which costs less bookkeeping than choosing what to forget,
// and natural text refills it at once.
//
// Threads: one thread at a time.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace jige::text {

class WordCache {
 public:
  static constexpr size_t kWordBytesMax = 96;

  WordCache();

  // The ids of a word, if known; valid until the next put().
  std::optional<std::span<const int32_t>> find(std::string_view word) const;
  // Remembers a word; longer ones than kWordBytesMax are ignored.
  void put(std::string_view word, std::span<const int32_t> ids);

 private:
  struct Slot {
    uint64_t hash = 0;
    uint32_t word_begin = 0;
    uint32_t ids_begin = 0;
    uint16_t word_size = 0;
    uint16_t ids_size = 0;
    uint32_t generation = 0;  // the slot is free unless this is the cache's own
  };
  size_t position(uint64_t hash, std::string_view word) const;
  // Ends with a free slot beside every word, and room for the letters of one more.
  void make_room();
  void grow();

  std::vector<Slot> slots_;  // a power of two
  std::string words_;
  std::vector<int32_t> ids_;
  uint32_t generation_ = 1;
  size_t count_ = 0;
};

}  // namespace jige::text
