#include "model/rope_table.h"

#include <gtest/gtest.h>

#include <cmath>

namespace jige::model {
namespace {

TEST(RopeTable, HoldsCosinesThenSines) {
  const formats::RopeConfig config{.theta = 10000.0};
  const auto table = make_rope_table(config, 8, 50);
  ASSERT_EQ(table.size(), 50u * 8);
  for (size_t position : {0u, 1u, 49u}) {
    for (size_t i = 0; i < 4; ++i) {
      const double angle =
          static_cast<double>(position) / std::pow(10000.0, static_cast<double>(i) / 4.0);
      EXPECT_FLOAT_EQ(table[position * 8 + i], static_cast<float>(std::cos(angle)));
      EXPECT_FLOAT_EQ(table[position * 8 + 4 + i], static_cast<float>(std::sin(angle)));
    }
  }
}

TEST(RopeTable, LinearScalingStretchesPositions) {
  const auto plain = make_rope_table({.theta = 500.0}, 12, 9);
  const auto scaled = make_rope_table(
      {.theta = 500.0, .scaling = formats::RopeScaling::kLinear, .factor = 4.0}, 12, 33);
  for (size_t position = 0; position < 9; ++position) {
    for (size_t i = 0; i < 12; ++i) {
      EXPECT_NEAR(plain[position * 12 + i], scaled[4 * position * 12 + i], 1e-6);
    }
  }
}

TEST(RopeTable, Llama3KeepsShortWavesAndStretchesLongOnes) {
  formats::RopeConfig config{.theta = 500000.0,
                             .scaling = formats::RopeScaling::kLlama3,
                             .factor = 8.0,
                             .low_freq_factor = 1.0,
                             .high_freq_factor = 4.0,
                             .original_context = 8192};
  const auto scaled = rope_inverse_frequencies(config, 128);
  config.scaling = formats::RopeScaling::kNone;
  const auto plain = rope_inverse_frequencies(config, 128);
  EXPECT_EQ(scaled.front(), plain.front());
  EXPECT_EQ(scaled.back(), plain.back() / 8.0);
  for (size_t i = 0; i < plain.size(); ++i) {
    const double ratio = plain[i] / scaled[i];
    EXPECT_GE(ratio, 1.0);
    EXPECT_LE(ratio, 8.0);
    EXPECT_GE(ratio, i > 0 ? plain[i - 1] / scaled[i - 1] : 1.0);
  }
  // The wave of pair 33 is 5440 long, between 8192 / 4 and 8192.
  const double share = (8192.0 * plain[33] / (2.0 * M_PI) - 1.0) / 3.0;
  EXPECT_NEAR(scaled[33], plain[33] * ((1.0 - share) / 8.0 + share), 1e-12);
  EXPECT_GT(share, 0.0);
  EXPECT_LT(share, 1.0);
}

}  // namespace
}  // namespace jige::model
