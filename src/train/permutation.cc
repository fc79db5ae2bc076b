#include "train/permutation.h"

#include <algorithm>
#include <bit>

#include "base/check.h"
#include "base/rng.h"

namespace jige::train {
namespace {

constexpr uint64_t kRounds = 8;
constexpr uint64_t kSizeMax = uint64_t{1} << 62;

}  // namespace

Permutation::Permutation(uint64_t key, uint64_t size) : key_(key), size_(size) {
  JIGE_CHECK(size >= 1 && size <= kSizeMax, "a permutation of {} elements", size);
  half_bits_ = std::max(1, (static_cast<int>(std::bit_width(size - 1)) + 1) / 2);
}

uint64_t Permutation::operator()(uint64_t place) const {
  JIGE_CHECK(place < size_, "place {} of {}", place, size_);
  uint64_t value = round_trip(place);
  while (value >= size_) value = round_trip(value);
  return value;
}

uint64_t Permutation::round_trip(uint64_t value) const {
  const uint64_t mask = (uint64_t{1} << half_bits_) - 1;
  uint64_t left = value >> half_bits_;
  uint64_t right = value & mask;
  for (uint64_t round = 0; round < kRounds; ++round) {
    const auto block = philox(key_, round, right);
    const uint64_t mixed = (static_cast<uint64_t>(block[1]) << 32) | block[0];
    const uint64_t next = left ^ (mixed & mask);
    left = right;
    right = next;
  }
  return (left << half_bits_) | right;
}

}  // namespace jige::train
