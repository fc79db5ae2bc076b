// Random numbers from a counter: the same key and counter give the same bits everywhere, in any
// order and on any number of threads. Philox-4x32-10 (Salmon et al., SC 2011).
//
// A *key* names the stream (seed, purpose), a *counter* the element in it, so dropout masks, data
// order and weights need no state to be saved but their position.
// Threads: values; no shared state.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>
#include <utility>

namespace jige {

// Ten rounds of Philox-4x32 over one 128-bit counter under a 64-bit key.
std::array<uint32_t, 4> philox(uint64_t key, uint64_t counter_high, uint64_t counter_low);

// Derives a key from a seed and a name, so that streams of different purpose never overlap.
uint64_t derive_key(uint64_t seed, std::string_view purpose, uint64_t index = 0);

// A sequential reader of one stream; copy it to save the position.
class Rng {
 public:
  explicit Rng(uint64_t key, uint64_t position = 0) : key_(key), position_(position) {}

  [[gnu::always_inline]] uint32_t next_u32() {
    if (position_ / kKept != kept_index_) keep();
    return kept_[position_++ % kKept];
  }
  [[gnu::always_inline]] uint64_t next_u64() {
    const uint64_t high = next_u32();
    return (high << 32) | next_u32();
  }
  // Uniform in [0, bound), without bias. REQUIRES: bound > 0.
  uint64_t below(uint64_t bound);
  // Uniform in [0, 1) with 53 bits.
  double uniform();
  // Standard normal by Box–Muller; takes two draws, keeps none.
  double normal();
  // Number of 32-bit draws so far; Rng(key, position()) continues from here.
  uint64_t position() const { return position_; }

  // Fisher–Yates over a span.
  template <typename T>
  void shuffle(std::span<T> items) {
    for (size_t i = items.size(); i > 1; --i) std::swap(items[i - 1], items[below(i)]);
  }

 private:
  static constexpr uint64_t kKept = 16;

  // Computes the draws around the position: four blocks of Philox, at once.
  void keep();

  uint64_t key_;
  uint64_t position_;
  std::array<uint32_t, kKept> kept_{};  // draws from kept_index_ * kKept on
  uint64_t kept_index_ = UINT64_MAX;
};

}  // namespace jige
