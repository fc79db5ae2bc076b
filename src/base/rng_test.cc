#include "base/rng.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>
#include <vector>

namespace jige {
namespace {

TEST(Philox, GivesTheKnownAnswers) {
  // The published vectors of Philox-4x32-10: counter words, key words, result words.
  using Block = std::array<uint32_t, 4>;
  EXPECT_EQ(philox(0, 0, 0), (Block{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(philox(UINT64_MAX, UINT64_MAX, UINT64_MAX),
            (Block{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox(0x299f31d0a4093822u, 0x0370734413198a2eu, 0x85a308d3243f6a88u),
            (Block{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(Rng, ReadsTheWordsOfConsecutiveCounters) {
  constexpr uint64_t kKey = 0x9e3779b97f4a7c15u;
  for (const uint64_t first : {uint64_t{0}, (uint64_t{1} << 32) - 6}) {
    Rng rng(kKey, 4 * first);
    for (uint64_t counter = first; counter < first + 11; ++counter) {
      for (const uint32_t word : philox(kKey, 0, counter)) ASSERT_EQ(rng.next_u32(), word);
    }
  }
}

TEST(Rng, ContinuesFromASavedPosition) {
  for (int skipped = 0; skipped < 12; ++skipped) {
    Rng rng(123);
    for (int i = 0; i < skipped; ++i) rng.next_u32();
    EXPECT_EQ(rng.position(), static_cast<uint64_t>(skipped));
    Rng resumed(123, rng.position());
    Rng copy = rng;
    for (int i = 0; i < 9; ++i) {
      const uint64_t expected = rng.next_u64();
      EXPECT_EQ(resumed.next_u64(), expected);
      EXPECT_EQ(copy.next_u64(), expected);
    }
  }
  Rng late(9, (uint64_t{1} << 40) + 3);
  EXPECT_EQ(late.next_u32(), philox(9, 0, uint64_t{1} << 38)[3]);
}

TEST(Rng, CountsItsDraws) {
  Rng rng(1);
  rng.next_u64();
  EXPECT_EQ(rng.position(), 2u);
  rng.uniform();
  EXPECT_EQ(rng.position(), 4u);
  rng.normal();
  EXPECT_EQ(rng.position(), 8u);
}

// A chi-square statistic of df degrees exceeds df + 5 sqrt(2 df) about once in 10^5 seeds.
void expect_uniform(const std::vector<int>& counts) {
  const double total = std::accumulate(counts.begin(), counts.end(), 0.0);
  const double mean = total / static_cast<double>(counts.size());
  double statistic = 0;
  for (const int count : counts) statistic += (count - mean) * (count - mean) / mean;
  const double degrees = static_cast<double>(counts.size()) - 1;
  EXPECT_LT(statistic, degrees + 5 * std::sqrt(2 * degrees));
  EXPECT_GT(statistic, degrees - 5 * std::sqrt(2 * degrees));
}

TEST(Rng, UniformFillsItsIntervalEvenly) {
  Rng rng(2);
  std::vector<int> counts(100, 0);
  for (int i = 0; i < 100000; ++i) {
    const double value = rng.uniform();
    ASSERT_TRUE(value >= 0 && value < 1);
    ++counts[static_cast<size_t>(value * 100)];
  }
  expect_uniform(counts);
}

TEST(Rng, BelowIsEvenAndInBounds) {
  Rng rng(3);
  for (const uint64_t bound : {2u, 3u, 7u, 100u}) {
    std::vector<int> counts(bound, 0);
    for (int i = 0; i < 40000; ++i) ++counts.at(rng.below(bound));
    expect_uniform(counts);
  }
  EXPECT_EQ(rng.below(1), 0u);
  // A bound over half of the range, where a plain remainder would favour small values threefold.
  const uint64_t large = (uint64_t{3} << 62) - 1;
  std::vector<int> thirds(3, 0);
  for (int i = 0; i < 30000; ++i) ++thirds.at(rng.below(large) / (uint64_t{1} << 62));
  expect_uniform(thirds);
}

TEST(Rng, NormalHasItsMoments) {
  Rng rng(4);
  constexpr int kCount = 200000;
  double sum = 0, squares = 0, fourth = 0;
  int beyond_two = 0;
  for (int i = 0; i < kCount; ++i) {
    const double value = rng.normal();
    ASSERT_TRUE(std::isfinite(value));
    sum += value;
    squares += value * value;
    fourth += value * value * value * value;
    beyond_two += std::fabs(value) > 2;
  }
  EXPECT_NEAR(sum / kCount, 0.0, 0.012);
  EXPECT_NEAR(squares / kCount, 1.0, 0.016);
  EXPECT_NEAR(fourth / kCount, 3.0, 0.12);
  EXPECT_NEAR(static_cast<double>(beyond_two) / kCount, 0.0455, 0.0025);
}

TEST(Rng, ShuffleGivesEveryOrderEquallyOften) {
  Rng rng(5);
  std::vector<int> counts(24, 0);
  for (int i = 0; i < 24000; ++i) {
    std::vector<int> items = {0, 1, 2, 3};
    rng.shuffle(std::span<int>(items));
    std::vector<int> order = {0, 1, 2, 3};
    size_t index = 0;
    while (order != items) {
      ASSERT_TRUE(std::next_permutation(order.begin(), order.end()));
      ++index;
    }
    ++counts[index];
  }
  expect_uniform(counts);
}

TEST(DeriveKey, SeparatesSeedsPurposesAndIndices) {
  std::set<uint64_t> keys;
  for (uint64_t seed = 0; seed < 10; ++seed) {
    for (const char* purpose : {"", "weights", "data", "dropout", "weightt"}) {
      for (uint64_t index = 0; index < 10; ++index) keys.insert(derive_key(seed, purpose, index));
    }
  }
  EXPECT_EQ(keys.size(), 500u);
  EXPECT_EQ(derive_key(1, "weights", 2), derive_key(1, "weights", 2));
}

}  // namespace
}  // namespace jige
