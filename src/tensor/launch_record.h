// LaunchRecord: a fingerprint of the work that is put on a stream, so that the same work is known
// again and can run as the graph that was made of it (CudaStream::run_repeated).
//
// Two series of launches with the same fingerprint are the same: kernels, grids and arguments, with
// the addresses in them (128 bits; a chance likeness would take 2^64 series). Threads: values.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

namespace jige {

class LaunchRecord {
 public:
  struct Fingerprint {
    uint64_t low = 0, high = 0;
    auto operator<=>(const Fingerprint&) const = default;
  };

  // Adds bytes of which the work is made.
  void add(const void* data, size_t bytes) {
    const auto* at = static_cast<const unsigned char*>(data);
    for (; bytes >= sizeof(uint64_t); bytes -= sizeof(uint64_t), at += sizeof(uint64_t)) {
      uint64_t word = 0;
      std::memcpy(&word, at, sizeof word);
      mix(word);
    }
    uint64_t rest = bytes;
    for (size_t i = 0; i < bytes; ++i) rest = rest << 8 | at[i];
    mix(rest);
  }
  // The same of a value, whatever its padding holds.
  template <typename T>
  void add_value(T value) {
    static_assert(std::is_trivially_copyable_v<T>);
    __builtin_clear_padding(&value);
    add(&value, sizeof value);
  }

  const Fingerprint& fingerprint() const { return print_; }
  // Whether work is only recorded, and not put on the stream.
  bool records_only = false;

 private:
  void mix(uint64_t word) {
    constexpr uint64_t kLow = 0x9e3779b97f4a7c15;
    constexpr uint64_t kHigh = 0xc2b2ae3d27d4eb4f;
    constexpr int kTurn = 29;
    print_.low = (print_.low ^ word) * kLow;
    print_.low ^= print_.low >> kTurn;
    print_.high = (print_.high + word) * kHigh;
    print_.high ^= print_.high >> kTurn;
  }

  Fingerprint print_;
};

}  // namespace jige
