#include "base/rng.h"

#include <immintrin.h>

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

// philox() of four counters in the 64-bit lanes of a register, whose upper halves are not used.
void Rng::keep() {
  kept_index_ = position_ / kKept;
  const uint64_t first = kept_index_ * (kKept / 4);
  __m256i c0 = _mm256_add_epi64(_mm256_set1_epi64x(static_cast<int64_t>(first)),
                                _mm256_setr_epi64x(0, 1, 2, 3));
  __m256i c1 = _mm256_srli_epi64(c0, 32);
  __m256i c2 = _mm256_setzero_si256();
  __m256i c3 = c2;
  __m256i key0 = _mm256_set1_epi32(static_cast<int>(key_));
  __m256i key1 = _mm256_set1_epi32(static_cast<int>(key_ >> 32));
  const __m256i multiplier0 = _mm256_set1_epi32(static_cast<int>(kMultiplier0));
  const __m256i multiplier1 = _mm256_set1_epi32(static_cast<int>(kMultiplier1));
  for (int round = 0; round < 10; ++round) {
    const __m256i product0 = _mm256_mul_epu32(multiplier0, c0);
    const __m256i product1 = _mm256_mul_epu32(multiplier1, c2);
    c0 = _mm256_xor_si256(_mm256_xor_si256(_mm256_srli_epi64(product1, 32), c1), key0);
    c1 = product1;
    c2 = _mm256_xor_si256(_mm256_xor_si256(_mm256_srli_epi64(product0, 32), c3), key1);
    c3 = product0;
    key0 = _mm256_add_epi32(key0, _mm256_set1_epi32(static_cast<int>(kWeyl0)));
    key1 = _mm256_add_epi32(key1, _mm256_set1_epi32(static_cast<int>(kWeyl1)));
  }
  // The low halves side by side: of blocks 0 and 2 in `low`, of 1 and 3 in `high`.
  const __m256i first_half = _mm256_blend_epi32(c0, _mm256_slli_epi64(c1, 32), 0xaa);
  const __m256i second_half = _mm256_blend_epi32(c2, _mm256_slli_epi64(c3, 32), 0xaa);
  const __m256i low = _mm256_unpacklo_epi64(first_half, second_half);
  const __m256i high = _mm256_unpackhi_epi64(first_half, second_half);
  auto* kept = reinterpret_cast<__m256i*>(kept_.data());
  _mm256_storeu_si256(kept, _mm256_permute2x128_si256(low, high, 0x20));
  _mm256_storeu_si256(kept + 1, _mm256_permute2x128_si256(low, high, 0x31));
}

uint64_t Rng::below(uint64_t bound) {
  JIGE_CHECK(bound > 0, "below(0) has no result");
  for (;;) {
    const uint64_t draw = next_u64();
    // The last numbers alone may lie beyond the largest multiple of the bound.
    if (draw <= UINT64_MAX - bound || draw < UINT64_MAX - UINT64_MAX % bound) return draw % bound;
  }
}

double Rng::uniform() { return static_cast<double>(next_u64() >> 11) * 0x1.0p-53; }

double Rng::normal() {
  const double radius = std::sqrt(-2.0 * std::log(1.0 - uniform()));
  return radius * std::cos(2.0 * std::numbers::pi * uniform());
}

}  // namespace jige
