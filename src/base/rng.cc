#include "base/rng.h"

#include <cmath>
#include <numbers>

#include "base/check.h"

namespace jige {
namespace {

constexpr uint32_t kMultiplier0 = 0xD2511F53;
constexpr uint32_t kMultiplier1 = 0xCD9E8D57;
constexpr uint32_t kWeyl0 = 0x9E3779B9;
constexpr uint32_t kWeyl1 = 0xBB67AE85;

}  // namespace

std::array<uint32_t, 4> philox(uint64_t key, uint64_t counter_high, uint64_t counter_low) {
  uint32_t key0 = static_cast<uint32_t>(key);
  uint32_t key1 = static_cast<uint32_t>(key >> 32);
  auto c0 = static_cast<uint32_t>(counter_low), c1 = static_cast<uint32_t>(counter_low >> 32);
  auto c2 = static_cast<uint32_t>(counter_high), c3 = static_cast<uint32_t>(counter_high >> 32);
  for (int round = 0; round < 10; ++round) {
    const uint64_t product0 = static_cast<uint64_t>(kMultiplier0) * c0;
    const uint64_t product1 = static_cast<uint64_t>(kMultiplier1) * c2;
    c0 = static_cast<uint32_t>(product1 >> 32) ^ c1 ^ key0;
    c1 = static_cast<uint32_t>(product1);
    c2 = static_cast<uint32_t>(product0 >> 32) ^ c3 ^ key1;
    c3 = static_cast<uint32_t>(product0);
    key0 += kWeyl0;
    key1 += kWeyl1;
  }
  return {c0, c1, c2, c3};
}

uint64_t derive_key(uint64_t seed, std::string_view purpose, uint64_t index) {
  uint64_t hash = 0xcbf29ce484222325ull;  // FNV-1a over the name, mixed with the seed by Philox
  for (const char c : purpose) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3ull;
  const auto mixed = philox(seed, hash, index);
  return (static_cast<uint64_t>(mixed[0]) << 32) | mixed[1];
}

uint32_t Rng::next_u32() {
  if (position_ / 4 != block_index_) {
    block_index_ = position_ / 4;
    block_ = philox(key_, 0, block_index_);
  }
  return block_[position_++ % 4];
}

uint64_t Rng::next_u64() {
  const uint64_t high = next_u32();
  return (high << 32) | next_u32();
}

uint64_t Rng::below(uint64_t bound) {
  JIGE_CHECK(bound > 0, "below(0) has no result");
  const uint64_t limit = UINT64_MAX - UINT64_MAX % bound;
  for (;;) {
    const uint64_t draw = next_u64();
    if (draw < limit) return draw % bound;
  }
}

double Rng::uniform() { return static_cast<double>(next_u64() >> 11) * 0x1.0p-53; }

double Rng::normal() {
  const double radius = std::sqrt(-2.0 * std::log(1.0 - uniform()));
  return radius * std::cos(2.0 * std::numbers::pi * uniform());
}

}  // namespace jige
