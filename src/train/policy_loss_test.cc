// Advantages by hand, and the loss of a token against finite differences.

#include "train/policy_loss.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace jige::train {
namespace {

TEST(GroupAdvantages, AreThoseComputedByHand) {
  // Mean 0.25, deviation sqrt((3 · 0.0625 + 0.5625) / 3) = 0.5.
  const std::vector<double> rewards = {0, 1, 0, 0};
  const std::vector<double> by_std = group_advantages(AdvantageKind::kStd, rewards, {});
  ASSERT_EQ(by_std.size(), 4u);
  EXPECT_DOUBLE_EQ(by_std[1], 0.75 / 0.5001);
  for (const size_t i : {0, 2, 3}) EXPECT_DOUBLE_EQ(by_std[i], -0.25 / 0.5001);
  EXPECT_EQ(group_advantages(AdvantageKind::kMean, rewards, {}),
            (std::vector<double>{-0.25, 0.75, -0.25, -0.25}));
  // Mean 2, deviation 2.
  const std::vector<double> spread =
      group_advantages(AdvantageKind::kStd, std::vector{0., 2., 4.}, {});
  EXPECT_DOUBLE_EQ(spread[0], -2 / 2.0001);
  EXPECT_EQ(spread[1], 0);
  EXPECT_DOUBLE_EQ(spread[2], 2 / 2.0001);
}

TEST(GroupAdvantages, AreDividedByTheDeviationOfTheWholeStepWhereAsked) {
  // Mean 2, squares 4 · 1 + 0 + 4 = 8 of five rewards.
  const std::vector<double> step = {1, 1, 3, 4, 1};
  const std::vector<double> first =
      group_advantages(AdvantageKind::kBatch, std::span(step).first(3), step);
  const double divisor = std::sqrt(8. / 4) + 1e-4;
  ASSERT_EQ(first.size(), 3u);
  EXPECT_DOUBLE_EQ(first[0], (1 - 5. / 3) / divisor);
  EXPECT_DOUBLE_EQ(first[2], (3 - 5. / 3) / divisor);
  EXPECT_TRUE(group_advantages(AdvantageKind::kBatch, std::span(step).first(2), step).empty());
}

TEST(GroupAdvantages, AreNotThereWhereAllRewardsAreTheSame) {
  for (const AdvantageKind kind :
       {AdvantageKind::kStd, AdvantageKind::kMean, AdvantageKind::kBatch}) {
    const std::vector<double> step = {0, 1, 2};
    EXPECT_TRUE(group_advantages(kind, std::vector{1., 1., 1.}, step).empty());
    EXPECT_TRUE(group_advantages(kind, std::vector{-0.3, -0.3}, step).empty());
    EXPECT_EQ(group_advantages(kind, std::vector{0., 1e-9}, step).size(), 2u);
  }
}

TEST(LengthReward, IsLostInTheMarginAndNowhereElse) {
  const OverlongOptions options{.penalty = 2, .margin = 4};
  const double expected[] = {0, 0, 0, 0, 0, 0, 0, -0.5, -1, -1.5, -2};
  for (int64_t count = 1; count <= 10; ++count) {
    EXPECT_EQ(length_reward(options, count, 10), expected[count]) << count;
    EXPECT_EQ(length_reward({.masks = true}, count, 10), 0) << count;
  }
  // A margin of all tokens.
  EXPECT_EQ(length_reward({.penalty = 1, .margin = 10}, 1, 10), -0.1);
}

TEST(TokenTerms, AreTheSurrogateOfAnAnswerThatWasJustDrawn) {
  const TokenTerms terms = token_terms({}, 1.5, {.now = -0.7, .drawn = -0.7});
  EXPECT_EQ(terms.loss, -1.5);
  EXPECT_EQ(terms.weight, 1.5);
  EXPECT_FALSE(terms.clipped);
  EXPECT_EQ(terms.kl, 0);
}

TEST(TokenTerms, ClipOnlyWhatWouldGainMore) {
  const PolicyLossOptions options{.clip_low = 0.2, .clip_high = 0.28};
  const struct {
    double ratio, advantage, loss, weight;
    bool clipped;
  } cases[] = {
      {1.5, 2, -2.56, 0, true},     {1.5, -2, 3, -3, false},     {0.5, 2, -1, 1, false},
      {0.5, -2, 1.6, 0, true},      {1.25, 2, -2.5, 2.5, false}, {0.75, -2, 1.6, 0, true},
      {0.85, -2, 1.7, -1.7, false}, {3, 0, 0, 0, false},
  };
  for (const auto& one : cases) {
    const TokenTerms terms = token_terms(options, one.advantage, {.now = std::log(one.ratio)});
    EXPECT_NEAR(terms.loss, one.loss, 1e-12) << one.ratio << " " << one.advantage;
    EXPECT_NEAR(terms.weight, one.weight, 1e-12) << one.ratio << " " << one.advantage;
    EXPECT_EQ(terms.clipped, one.clipped) << one.ratio << " " << one.advantage;
  }
}

// The weight is minus the derivative by the log-probability.
TEST(TokenTerms, HaveTheGradientOfTheirLoss) {
  constexpr double kStep = 1e-6;
  for (const double kl : {0.0, 0.3}) {
    for (const double advantage : {-1.3, 0.0, 0.8}) {
      for (const double drawn : {-1.2, -0.95, -0.8, -0.4}) {
        const PolicyLossOptions options{.kl = kl};
        TokenLogProbs at{.now = -0.9, .drawn = drawn, .reference = -0.5};
        const double weight = token_terms(options, advantage, at).weight;
        at.now += kStep;
        const double above = token_terms(options, advantage, at).loss;
        at.now -= 2 * kStep;
        const double below = token_terms(options, advantage, at).loss;
        EXPECT_NEAR(weight, -(above - below) / (2 * kStep), 1e-8)
            << kl << " " << advantage << " " << drawn;
      }
    }
  }
  const TokenTerms terms = token_terms({.kl = 0.5}, 0, {.now = -1, .reference = -1.5});
  EXPECT_DOUBLE_EQ(terms.kl, std::exp(-0.5) + 0.5 - 1);
  EXPECT_DOUBLE_EQ(terms.loss, 0.5 * terms.kl);
}

TEST(TokenTerms, KeepWhatIsNotFinite) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_TRUE(std::isnan(token_terms({}, 1, {.now = nan}).loss));
  EXPECT_TRUE(std::isnan(token_terms({}, -1, {.now = nan}).weight));
}

}  // namespace
}  // namespace jige::train
