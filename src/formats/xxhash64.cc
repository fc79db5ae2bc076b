#include "formats/xxhash64.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>

namespace jige::formats {
namespace {

constexpr uint64_t kPrime1 = 0x9E3779B185EBCA87u;
constexpr uint64_t kPrime2 = 0xC2B2AE3D27D4EB4Fu;
constexpr uint64_t kPrime3 = 0x165667B19E3779F9u;
constexpr uint64_t kPrime4 = 0x85EBCA77C2B2AE63u;
constexpr uint64_t kPrime5 = 0x27D4EB2F165667C5u;
constexpr size_t kStripe = 32;

template <typename T>
uint64_t load(const std::byte* data) {
  T value;
  std::memcpy(&value, data, sizeof value);
  return value;
}

uint64_t round_lane(uint64_t lane, uint64_t input) {
  return std::rotl(lane + input * kPrime2, 31) * kPrime1;
}

uint64_t merge_lane(uint64_t hash, uint64_t lane) {
  return (hash ^ round_lane(0, lane)) * kPrime1 + kPrime4;
}

// The bytes of a last, open stripe and the final mixing.
uint64_t finish(uint64_t hash, const std::byte* data, size_t size) {
  for (; size >= 8; data += 8, size -= 8) {
    hash = std::rotl(hash ^ round_lane(0, load<uint64_t>(data)), 27) * kPrime1 + kPrime4;
  }
  if (size >= 4) {
    hash = std::rotl(hash ^ load<uint32_t>(data) * kPrime1, 23) * kPrime2 + kPrime3;
    data += 4;
    size -= 4;
  }
  for (; size > 0; ++data, --size) {
    hash = std::rotl(hash ^ load<uint8_t>(data) * kPrime5, 11) * kPrime1;
  }
  hash = (hash ^ (hash >> 33)) * kPrime2;
  hash = (hash ^ (hash >> 29)) * kPrime3;
  return hash ^ (hash >> 32);
}

}  // namespace

void XxHash64::consume(const std::byte* data, size_t stripe_count) {
  auto lanes = lanes_;  // in registers: four independent chains
  for (size_t stripe = 0; stripe < stripe_count; ++stripe, data += kStripe) {
    for (size_t i = 0; i < 4; ++i) lanes[i] = round_lane(lanes[i], load<uint64_t>(data + 8 * i));
  }
  lanes_ = lanes;
}

void XxHash64::update(const void* data, size_t size) {
  if (size == 0) return;
  const auto* bytes = static_cast<const std::byte*>(data);
  const size_t held = total_ % kStripe;
  total_ += size;
  if (held > 0) {
    const size_t taken = std::min(size, kStripe - held);
    std::memcpy(pending_.data() + held, bytes, taken);
    if (held + taken < kStripe) return;
    consume(pending_.data(), 1);
    bytes += taken;
    size -= taken;
  }
  consume(bytes, size / kStripe);
  std::memcpy(pending_.data(), bytes + size / kStripe * kStripe, size % kStripe);
}

uint64_t XxHash64::digest() const {
  uint64_t hash = kPrime5;
  if (total_ >= kStripe) {
    hash = std::rotl(lanes_[0], 1) + std::rotl(lanes_[1], 7) + std::rotl(lanes_[2], 12) +
           std::rotl(lanes_[3], 18);
    for (const uint64_t lane : lanes_) hash = merge_lane(hash, lane);
  }
  return finish(hash + total_, pending_.data(), total_ % kStripe);
}

uint64_t xxhash64(std::span<const std::byte> bytes) {
  XxHash64 hash;
  hash.update(bytes.data(), bytes.size());
  return hash.digest();
}

std::string checksum_text(uint64_t checksum) { return fmt::format("{:016x}", checksum); }

}  // namespace jige::formats
