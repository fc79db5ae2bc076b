#include "train/preference.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace jige::train {
namespace {

constexpr DpoOptions kAll{.beta = 0.3, .label_smoothing = 0.1, .sft_weight = 0.7};

// The formula as it is written.
double plain_loss(const DpoOptions& options, const PairLogProbs& policy,
                  const PairLogProbs& reference, double tokens) {
  const double margin =
      options.beta * ((policy.chosen - reference.chosen) - (policy.rejected - reference.rejected));
  const auto log_sigmoid = [](double x) { return -std::log(1 + std::exp(-x)); };
  return -(1 - options.label_smoothing) * log_sigmoid(margin) -
         options.label_smoothing * log_sigmoid(-margin) -
         options.sft_weight * policy.chosen / tokens;
}

TEST(PairTerms, AreTheFormula) {
  const PairLogProbs policy{-12, -15.5}, reference{-13, -14};
  const PairTerms terms = pair_terms(kAll, policy, reference, 6);
  EXPECT_DOUBLE_EQ(terms.margin, 0.3 * 2.5);
  EXPECT_NEAR(terms.loss, plain_loss(kAll, policy, reference, 6), 1e-14);
}

TEST(PairTerms, HaveTheWeightsThatTheLossFallsBy) {
  const PairLogProbs policy{-12, -15.5}, reference{-13, -14};
  const double h = 1e-5;
  const PairTerms terms = pair_terms(kAll, policy, reference, 6);
  // A weight is that of cross-entropy, which falls where the log-probability rises.
  const auto loss = [&](const PairLogProbs& at) { return pair_terms(kAll, at, reference, 6).loss; };
  const double by_chosen = (loss({-12 - h, -15.5}) - loss({-12 + h, -15.5})) / (2 * h);
  const double by_rejected = (loss({-12, -15.5 - h}) - loss({-12, -15.5 + h})) / (2 * h);
  EXPECT_NEAR(terms.chosen_weight, by_chosen, 1e-9);
  EXPECT_NEAR(terms.rejected_weight, by_rejected, 1e-9);
  EXPECT_GT(terms.chosen_weight, 0);
  EXPECT_LT(terms.rejected_weight, 0);
}

TEST(PairTerms, StayFiniteWhereMarginsAreHuge) {
  const DpoOptions plain{.beta = 1};
  for (const double gap : {1e4, 1e6}) {
    const PairTerms won = pair_terms(plain, {0, -gap}, {}, 1);
    EXPECT_EQ(won.loss, 0);
    EXPECT_EQ(won.chosen_weight, 0);
    const PairTerms lost = pair_terms(plain, {-gap, 0}, {}, 1);
    EXPECT_EQ(lost.loss, gap);
    EXPECT_EQ(lost.chosen_weight, 1);
    EXPECT_EQ(lost.rejected_weight, -1);
  }
}

TEST(PairTerms, AreNotFiniteWhereALogProbabilityIsNot) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_FALSE(std::isfinite(pair_terms({}, {nan, -1}, {}, 1).loss));
  EXPECT_FALSE(std::isfinite(pair_terms({}, {-1, nan}, {}, 1).loss));
}

TEST(PreferenceSums, AreMeansOfThePairs) {
  PreferenceSums sums;
  const DpoOptions plain{.beta = 1};
  for (const auto& policy : {PairLogProbs{-1, -3}, PairLogProbs{-4, -4}, PairLogProbs{-2, -1}}) {
    const PairTerms terms = pair_terms(plain, policy, {}, 1);
    sums.add({terms.loss, terms.margin, policy});
  }
  const PreferenceMeans means = sums.means();
  EXPECT_EQ(means.pair_count, 3);
  EXPECT_DOUBLE_EQ(means.margin, 1.0 / 3);
  EXPECT_DOUBLE_EQ(means.accuracy, 1.0 / 3);  // a margin of 0 is not right
  EXPECT_DOUBLE_EQ(means.chosen_logprob, -7.0 / 3);
  EXPECT_DOUBLE_EQ(means.rejected_logprob, -8.0 / 3);
  EXPECT_DOUBLE_EQ(sums.loss(), 3 * means.loss);
}

}  // namespace
}  // namespace jige::train
