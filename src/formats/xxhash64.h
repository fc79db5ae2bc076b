// XXH64: the 64-bit checksum of checkpoint files, the same as `xxhsum -H64` prints.
//
// Guards against torn, truncated and decayed files, not against forgery. Little-endian lanes of
// 8 bytes, four accumulators over stripes of 32 bytes, seed 0.
// Threads: one object per thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace jige::formats {

class XxHash64 {
 public:
  // Appends bytes; any split of the same bytes gives the same digest.
  void update(const void* data, size_t size);
  // The checksum of all bytes so far; more may follow.
  uint64_t digest() const;

 private:
  // Folds whole stripes into the accumulators.
  void consume(const std::byte* data, size_t stripe_count);

  static constexpr uint64_t kPrime1 = 0x9E3779B185EBCA87u;
  static constexpr uint64_t kPrime2 = 0xC2B2AE3D27D4EB4Fu;
  std::array<uint64_t, 4> lanes_{kPrime1 + kPrime2, kPrime2, 0, 0 - kPrime1};
  std::array<std::byte, 32> pending_{};  // the first total_ % 32 bytes of an open stripe
  uint64_t total_ = 0;
};

uint64_t xxhash64(std::span<const std::byte> bytes);

// Sixteen lower-case hexadecimal digits.
std::string checksum_text(uint64_t checksum);

}  // namespace jige::formats
