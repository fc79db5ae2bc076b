#include "model/rope_table.h"

#include <gtest/gtest.h>

#include <cmath>
#include <utility>
#include <vector>

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

TEST(RopeTable, NtkRaisesThetaAndStretchesAll) {
  const auto scaled = rope_inverse_frequencies(
      {.theta = 500.0, .scaling = formats::RopeScaling::kNtk, .factor = 8.0}, 12, 1);
  ASSERT_EQ(scaled.size(), 6u);
  for (size_t i = 0; i < scaled.size(); ++i) {
    const double power = static_cast<double>(i) / 6.0;
    EXPECT_NEAR(scaled[i], std::pow(4000.0, -power) / std::pow(8.0, 1.0 / 6.0), 1e-12);
  }
  EXPECT_NEAR(scaled.back(), std::pow(500.0, -5.0 / 6.0) / 8.0, 1e-12) << "as if scaled linearly";
}

TEST(RopeTable, Llama3KeepsShortWavesAndStretchesLongOnes) {
  formats::RopeConfig config{.theta = 500000.0,
                             .scaling = formats::RopeScaling::kLlama3,
                             .factor = 8.0,
                             .low_freq_factor = 1.0,
                             .high_freq_factor = 4.0,
                             .original_context = 8192};
  const auto scaled = rope_inverse_frequencies(config, 128, 1);
  config.scaling = formats::RopeScaling::kNone;
  const auto plain = rope_inverse_frequencies(config, 128, 1);
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

// Frequencies as transformers 5.23 computes them, in f32.
void expect_frequencies(const std::vector<double>& frequencies,
                        const std::vector<std::pair<size_t, double>>& expected) {
  for (const auto& [pair, value] : expected) {
    EXPECT_NEAR(frequencies.at(pair), value, 1e-6 * value) << "pair " << pair;
  }
}

TEST(RopeTable, YarnIsAsTransformersComputesIt) {
  const formats::RopeConfig whole_range{.theta = 150000.0,
                                        .scaling = formats::RopeScaling::kYarn,
                                        .factor = 32.0,
                                        .original_context = 4096,
                                        .truncate = false};
  expect_frequencies(rope_inverse_frequencies(whole_range, 64, 1), {{0, 1.0},
                                                                    {8, 0.0508132726},
                                                                    {9, 0.0317056961},
                                                                    {12, 0.00679495931},
                                                                    {16, 0.000456483918},
                                                                    {17, 0.000129318694},
                                                                    {18, 3.83088118e-05},
                                                                    {31, 3.0235114e-07}});
  const formats::RopeConfig rounded{.theta = 1000000.0,
                                    .scaling = formats::RopeScaling::kYarn,
                                    .factor = 4.0,
                                    .original_context = 32768};
  expect_frequencies(rope_inverse_frequencies(rounded, 128, 1), {{23, 0.00697830599},
                                                                 {24, 0.00537532149},
                                                                 {31, 0.000802959781},
                                                                 {39, 6.4903943e-05},
                                                                 {40, 4.44569851e-05},
                                                                 {63, 3.10234441e-07}});
  const formats::RopeConfig narrow{.theta = 10000.0,
                                   .scaling = formats::RopeScaling::kYarn,
                                   .factor = 40.0,
                                   .original_context = 4096,
                                   .beta_fast = 16.0,
                                   .beta_slow = 2.0};
  expect_frequencies(rope_inverse_frequencies(narrow, 16, 1),
                     {{3, 0.0316227786}, {4, 0.00674999924}, {5, 0.00110679714}, {6, 2.5e-05}});
}

TEST(RopeTable, YarnMultipliesCosinesAndSines) {
  const auto table = make_rope_table({.theta = 500.0,
                                      .scaling = formats::RopeScaling::kYarn,
                                      .factor = 2.0,
                                      .original_context = 64,
                                      .attention_factor = 1.25},
                                     8, 2);
  for (size_t i = 0; i < 4; ++i) EXPECT_EQ(table[i], 1.25f) << "cosine of pair " << i;
}

TEST(RopeTable, LongRopeHasOtherFactorsBeyondTheOriginalContext) {
  const formats::RopeConfig config{.theta = 100.0,
                                   .scaling = formats::RopeScaling::kLongRope,
                                   .original_context = 10,
                                   .short_factors = {1.0, 1.5, 2.0},
                                   .long_factors = {1.0, 3.0, 8.0},
                                   .attention_factor = 1.25};
  for (const int64_t positions : {10, 11}) {
    const auto& factors = positions > 10 ? config.long_factors : config.short_factors;
    const auto table = make_rope_table(config, 6, positions);
    ASSERT_EQ(table.size(), static_cast<size_t>(positions) * 6);
    for (size_t position = 0; position < static_cast<size_t>(positions); ++position) {
      for (size_t i = 0; i < 3; ++i) {
        const double angle = static_cast<double>(position) /
                             (factors[i] * std::pow(100.0, static_cast<double>(i) / 3));
        EXPECT_NEAR(table[position * 6 + i], 1.25 * std::cos(angle), 1e-6);
        EXPECT_NEAR(table[position * 6 + 3 + i], 1.25 * std::sin(angle), 1e-6);
      }
    }
  }
}

TEST(RopeTable, QueriesOfLatentsGrowAsWholeHeads) {
  formats::ModelConfig config;
  config.head_dim = 10;
  config.rotary_dim = 4;
  config.latent.rank = 9;
  config.rope = {.theta = 100.0,
                 .scaling = formats::RopeScaling::kYarn,
                 .factor = 4.0,
                 .original_context = 3,
                 .query_growth = 0.5};
  EXPECT_FALSE(has_two_rope_tables(config));
  EXPECT_EQ(growth_begin(config), 4);
  ASSERT_EQ(rope_columns(config), 14);
  const auto table = make_rope_table(config, 8);
  const auto angles = make_rope_table(config.rope, 4, 8);
  for (size_t position = 0; position < 8; ++position) {
    const float* row = table.data() + position * 14;
    const float size =
        static_cast<float>(1.0 + 0.5 * std::log1p(static_cast<double>(position / 3)));
    for (size_t i = 0; i < 4; ++i) EXPECT_EQ(row[i], angles[position * 4 + i]);
    for (size_t i = 0; i < 10; ++i) EXPECT_EQ(row[4 + i], i < 5 ? size : 0.0f) << position;
  }
}

TEST(RopeTable, SlidingLayersHaveColumnsOfTheirOwn) {
  formats::ModelConfig config;
  config.head_dim = 8;
  config.rope.theta = 1e4;
  config.sliding_rope = formats::RopeConfig{.theta = 50.0};
  const auto both = make_rope_table(config, 7);
  const auto full = make_rope_table(config.rope, 8, 7);
  const auto sliding = make_rope_table(*config.sliding_rope, 8, 7);
  ASSERT_EQ(both.size(), 7u * 16);
  for (size_t row = 0; row < 7; ++row) {
    for (size_t i = 0; i < 8; ++i) {
      EXPECT_EQ(both[row * 16 + i], full[row * 8 + i]);
      EXPECT_EQ(both[row * 16 + 8 + i], sliding[row * 8 + i]);
    }
  }
  config.rotary_dim = 4;
  EXPECT_EQ(make_rope_table(config, 7).size(), 7u * 8);
}

TEST(RopeTable, BackwardsHasTheSinesOfNegativeAngles) {
  formats::ModelConfig config;
  config.head_dim = 8;
  const auto forwards = make_rope_table(config, 5);
  config.turns_backwards = true;
  const auto backwards = make_rope_table(config, 5);
  ASSERT_EQ(backwards.size(), forwards.size());
  for (size_t i = 0; i < forwards.size(); ++i) {
    EXPECT_EQ(backwards[i], i % 8 < 4 ? forwards[i] : -forwards[i]) << i;
  }
}

TEST(RopeTable, ProportionalTurnsTheFirstPairsByTheAnglesOfTheWholeHead) {
  formats::RopeConfig config{.theta = 500.0,
                             .scaling = formats::RopeScaling::kProportional,
                             .factor = 2.0,
                             .turned_share = 0.5};
  // floor(0.5 · 10 / 2) of five pairs.
  const auto frequencies = rope_inverse_frequencies(config, 10, 64);
  ASSERT_EQ(frequencies.size(), 5u);
  EXPECT_DOUBLE_EQ(frequencies[0], 0.5);
  EXPECT_DOUBLE_EQ(frequencies[1], std::pow(500.0, -0.2) / 2);
  for (size_t i = 2; i < 5; ++i) EXPECT_EQ(frequencies[i], 0.0);
  const auto table = make_rope_table(config, 10, 4);
  for (size_t row = 0; row < 4; ++row) {
    for (size_t i = 2; i < 5; ++i) {
      EXPECT_EQ(table[row * 10 + i], 1.0f);
      EXPECT_EQ(table[row * 10 + 5 + i], 0.0f);
    }
  }
}

TEST(RopeTable, HeadsOfLayersWithoutWindowMayBeWider) {
  formats::ModelConfig config;
  config.head_dim = 4;
  config.full_heads.head_dim = 6;
  config.rope.theta = 100.0;
  ASSERT_EQ(rope_columns(config), 10);
  for (const double theta : {100.0, 50.0}) {
    if (theta != 100.0) config.sliding_rope = formats::RopeConfig{.theta = theta};
    const auto both = make_rope_table(config, 5);
    const auto full = make_rope_table(config.rope, 6, 5);
    const auto sliding = make_rope_table({.theta = theta}, 4, 5);
    ASSERT_EQ(both.size(), 5u * 10);
    for (size_t row = 0; row < 5; ++row) {
      for (size_t i = 0; i < 6; ++i) EXPECT_EQ(both[row * 10 + i], full[row * 6 + i]);
      for (size_t i = 0; i < 4; ++i) EXPECT_EQ(both[row * 10 + 6 + i], sliding[row * 4 + i]);
    }
  }
}

TEST(RopeTable, QueriesThatGrowHaveColumnsOfTheirOwn) {
  formats::ModelConfig config;
  config.head_dim = 4;
  config.rope = {.theta = 100.0,
                 .scaling = formats::RopeScaling::kYarn,
                 .factor = 2.0,
                 .original_context = 3,
                 .attention_factor = 1.5,
                 .query_growth = 0.25};
  const auto both = make_rope_table(config, 8);
  const auto keys = make_rope_table(config.rope, 4, 8);
  ASSERT_EQ(both.size(), 8u * 8);
  // 1 + 0.25 log(1 + floor(position / 3))
  const double sizes[] = {1, 1, 1, 1.1732867951, 1.1732867951, 1.1732867951, 1.2746530722};
  for (size_t row = 0; row < 7; ++row) {
    for (size_t i = 0; i < 4; ++i) {
      EXPECT_EQ(both[row * 8 + i], keys[row * 4 + i]);
      EXPECT_NEAR(both[row * 8 + 4 + i], sizes[row] * keys[row * 4 + i], 3e-7) << row;
    }
  }
}

// Where heads do not turn.
TEST(RopeTable, QueriesThatGrowWithoutTurningHaveAnglesOfZero) {
  formats::ModelConfig config;
  config.head_dim = 4;
  config.layer_is_unturned = {0, 1};
  config.query_growth = {.rate = 0.25, .context = 3};
  ASSERT_EQ(growth_begin(config), 4);
  ASSERT_EQ(rope_columns(config), 8);
  const auto both = make_rope_table(config, 8);
  const auto turned = make_rope_table(config.rope, 4, 8);
  ASSERT_EQ(both.size(), 8u * 8);
  // 1 + 0.25 log(1 + floor((position + 1) / 3))
  const float sizes[] = {1, 1, 1.1732868f, 1.1732868f, 1.1732868f, 1.2746531f, 1.2746531f};
  for (size_t row = 0; row < 7; ++row) {
    for (size_t i = 0; i < 4; ++i) {
      EXPECT_EQ(both[row * 8 + i], turned[row * 4 + i]);
      EXPECT_NEAR(both[row * 8 + 4 + i], i < 2 ? sizes[row] : 0.0f, 2e-7) << row;
    }
  }
}

TEST(RopeTable, Llama3WithoutASpanBetweenItsFactorsStretchesAllLongerWaves) {
  const formats::RopeConfig config{.theta = 500000.0,
                                   .scaling = formats::RopeScaling::kLlama3,
                                   .factor = 16.0,
                                   .low_freq_factor = 1.0,
                                   .high_freq_factor = 1.0,
                                   .original_context = 8192};
  const auto scaled = rope_inverse_frequencies(config, 128, 1);
  const auto plain = rope_inverse_frequencies({.theta = 500000.0}, 128, 1);
  for (size_t i = 0; i < plain.size(); ++i) {
    EXPECT_EQ(scaled[i], 2 * M_PI / plain[i] < 8192 ? plain[i] : plain[i] / 16.0) << i;
  }
}

}  // namespace
}  // namespace jige::model
