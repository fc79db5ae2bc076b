#include "serve/draft_policy.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>

#include "base/rng.h"

namespace jige::serve {
namespace {

// Steps of base + slope a row, as many rows as are drawn below `rows_max`, with noise.
StepCost learned(double base, double slope, int64_t rows_max, uint64_t seed = 1) {
  Rng rng(derive_key(seed, "step cost"));
  StepCost cost;
  for (int i = 0; i < 400; ++i) {
    const auto rows = static_cast<int64_t>(1 + rng.below(static_cast<uint64_t>(rows_max)));
    const double noise = 0.95 + 0.1 * rng.uniform();
    cost.add(rows, (base + slope * static_cast<double>(rows)) * noise);
  }
  return cost;
}

int32_t worth(double chance, const StepCost& cost, int64_t room = 100) {
  DraftWish wish{.chance = chance, .count_max = 8};
  share_step(std::span(&wish, 1), cost, 1, room);
  return wish.count;
}

// All of `sequences` have a wish of this chance; guesses in all.
int32_t shared(double chance, const StepCost& cost, int64_t sequences) {
  std::vector<DraftWish> wishes(static_cast<size_t>(sequences), {.chance = chance, .count_max = 8});
  share_step(wishes, cost, sequences, 1000);
  int32_t total = 0;
  for (const DraftWish& wish : wishes) total += wish.count;
  return total;
}

TEST(StepCost, LearnsThePriceOfARow) {
  EXPECT_NEAR(learned(0.010, 0.0005, 8).price(1), 0.0005 / 0.0105, 0.012);
  EXPECT_NEAR(learned(0.001, 0.002, 8).price(1), 0.002 / 0.003, 0.1);
  EXPECT_NEAR(learned(0.001, 0.002, 8).price(30), 0.002 / 0.061, 0.01);
  EXPECT_LT(learned(0.010, 0.0, 8).price(1), 0.012);
}

TEST(StepCost, HasAGuessBeforeItHasSeenStepsOfSeveralSizes) {
  StepCost cost;
  EXPECT_GT(cost.price(1), 0.02);
  EXPECT_LT(cost.price(1), 0.1);
  const double before = cost.price(1);
  for (int i = 0; i < 100; ++i) cost.add(1, 0.01);
  EXPECT_DOUBLE_EQ(cost.price(1), before);
}

TEST(StepCost, KeepsThePriceWhileAllStepsAreAlike) {
  StepCost cost = learned(0.01, 0.003, 8);
  const double before = cost.price(1);
  for (int i = 0; i < 2000; ++i) cost.add(1, 0.013);
  EXPECT_NEAR(cost.price(1), before, 0.05);
}

TEST(StepCost, OneStepThatWasHeldUpChangesLittle) {
  StepCost cost = learned(0.01, 0.0005, 8);
  const double before = cost.price(1);
  cost.add(1, 5.0);
  EXPECT_NEAR(cost.price(1), before, 0.05);
}

TEST(DraftTrust, FollowsWhatCameTrue) {
  DraftTrust trust;
  EXPECT_GT(trust.chance(0), trust.chance(1)) << "long matches are better evidence";
  for (int i = 0; i < 60; ++i) trust.judge(1, 0, true);
  EXPECT_LT(trust.chance(1), 0.03);
  EXPECT_EQ(trust.chance(0), DraftTrust().chance(0)) << "levels are judged apart";
  for (int i = 0; i < 10; ++i) trust.judge(1, 8, false);
  EXPECT_GT(trust.chance(1), 0.9);
  for (int i = 0; i < 60; ++i) trust.judge(1, 1, true);
  EXPECT_NEAR(trust.chance(1), 0.5, 0.05);
}

TEST(ShareStep, DraftsWhatIsWorthItsRow) {
  const StepCost cheap = learned(0.01, 0.0002, 8);
  const StepCost dear = learned(0.0005, 0.004, 8);
  EXPECT_EQ(worth(0.95, cheap), 8);
  EXPECT_EQ(worth(0.005, cheap), 0);
  EXPECT_EQ(worth(0.19, learned(0.01, 0, 8)), 0) << "too little to be sure of, at any price";
  EXPECT_EQ(worth(1.0, dear), 0) << "a row that costs a step brings at most a step";
  EXPECT_GT(worth(0.6, cheap), worth(0.3, cheap));
  EXPECT_EQ(worth(0.95, cheap, 3), 3) << "no more than there is room for";
  EXPECT_EQ(worth(0.95, cheap, 0), 0);
  EXPECT_EQ(worth(0.95, cheap, -4), 0);
}

TEST(ShareStep, DraftsStopWhereAStepIsBoundByArithmetic) {
  const StepCost cost = learned(0.01, 0.0006, 16);
  EXPECT_EQ(shared(0.9, cost, 1), 8);
  EXPECT_GT(shared(0.9, cost, 4), 8);
  EXPECT_EQ(shared(0.9, cost, 64), 0);
}

TEST(ShareStep, TokensASecondAreWhatIsRaised) {
  // By trying: no other number of guesses for each promises a tenth more.
  const double base = 0.01;
  const double slope = 0.0004;
  const StepCost cost = learned(base, slope, 16);
  for (const double chance : {0.1, 0.6, 0.9}) {
    for (const int64_t sequences : {1, 3, 8, 20}) {
      const auto rate = [&](double guesses) {  // of each sequence
        const auto s = static_cast<double>(sequences);
        const double tokens = (1 - std::pow(chance, guesses + 1)) / (1 - chance);
        return s * tokens / (base + slope * s * (1 + guesses));
      };
      double best = 0;
      for (int guesses = 0; guesses <= 8; ++guesses) best = std::max(best, rate(guesses));
      const double taken =
          static_cast<double>(shared(chance, cost, sequences)) / static_cast<double>(sequences);
      EXPECT_GT(rate(taken), 0.9 * best) << chance << " for " << sequences;
    }
  }
}

TEST(ShareStep, NobodyPaysMoreThanATenthForOthers) {
  const StepCost cost = learned(0.01, 0.0002, 8);
  for (const int64_t sequences : {2, 5}) {  // the others have no wish at all, or an unlikely one
    std::vector<DraftWish> wishes = {{.chance = 0.98, .count_max = 60}};
    if (sequences == 2) wishes.push_back({.chance = 0.001, .count_max = 8});
    share_step(wishes, cost, sequences, 100);
    EXPECT_GT(wishes[0].count, 1);
    EXPECT_LE(wishes[0].count * cost.price(sequences), 0.112);
  }
  // Where all gain, all may be lengthened.
  EXPECT_GT(shared(0.98, cost, 5) * cost.price(5), 0.112);
}

TEST(ShareStep, TheLikeliestGuessesComeFirst) {
  const StepCost cost = learned(0.01, 0.00001, 8);
  std::vector<DraftWish> wishes = {{.chance = 0.5, .count_max = 8},
                                   {.chance = 0.9, .count_max = 3},
                                   {.chance = 0.2, .count_max = 8}};
  share_step(wishes, cost, 3, 5);
  EXPECT_EQ(wishes[1].count, 3);
  EXPECT_EQ(wishes[0].count, 2);
  EXPECT_EQ(wishes[2].count, 0);
}

TEST(HitRate, KeepsTheLastTrials) {
  HitRate rate(0.6, 10, 200);
  EXPECT_DOUBLE_EQ(rate.chance(), 0.6);
  rate.judge(0, true);
  EXPECT_NEAR(rate.chance(), 6.0 / 11, 0.01);
  for (int i = 0; i < 2000; ++i) rate.judge(0, true);
  EXPECT_LT(rate.chance(), 0.01);
  for (int i = 0; i < 50; ++i) rate.judge(4, false);
  EXPECT_NEAR(rate.chance(), 1 - std::exp(-1), 0.01);
}

// All of `sequences` are guessed by the draft model; guesses of each, which are as many for all.
int32_t of_model(double chance, const StepCost& cost, const StepCost& model_cost,
                 int64_t sequences) {
  std::vector<DraftWish> wishes(static_cast<size_t>(sequences),
                                {.chance = chance, .count_max = 8, .by_model = true});
  share_step(wishes, cost, sequences, 1000, model_cost);
  for (const DraftWish& wish : wishes) EXPECT_EQ(wish.count, wishes[0].count);
  return wishes[0].count;
}

TEST(ShareStep, ADraftModelIsRunWhereItsStepsAreWorthIt) {
  const StepCost cost = learned(0.010, 0.0002, 8);
  const StepCost cheap = learned(0.0008, 0.00002, 8);
  EXPECT_GE(of_model(0.9, cost, cheap, 1), 4);
  EXPECT_GT(of_model(0.9, cost, cheap, 1), of_model(0.6, cost, cheap, 1));
  EXPECT_GE(of_model(0.6, cost, cheap, 1), 1);
  EXPECT_EQ(of_model(0.1, cost, cheap, 1), 0);
  EXPECT_EQ(of_model(1.0, cost, cost, 1), 0) << "as slow as what it saves";
  EXPECT_EQ(of_model(0.9, learned(0.010, 0.0006, 16), cheap, 64), 0) << "bound by arithmetic";
  EXPECT_GE(of_model(0.9, cost, {}, 1), 4) << "until it was measured, it is tried";
  // What pays for one guess need not pay for two.
  const StepCost dear = learned(0.006, 0.00002, 8);
  EXPECT_EQ(of_model(0.7, cost, dear, 1), 0);
  const StepCost half = learned(0.0045, 0.00002, 8);
  EXPECT_EQ(of_model(0.7, cost, half, 1), 1);
  EXPECT_GE(of_model(0.95, cost, half, 1), 2) << "the step is longer by the first, too";
}

TEST(ShareStep, TokensASecondAreWhatADraftModelRaises) {
  const double base = 0.01, slope = 0.0004, model_base = 0.0007, model_slope = 0.00005;
  const StepCost cost = learned(base, slope, 16);
  const StepCost model_cost = learned(model_base, model_slope, 16);
  for (const double chance : {0.5, 0.7, 0.9}) {
    for (const int64_t sequences : {1, 3, 8, 20}) {
      const auto rate = [&](double guesses) {  // of each sequence
        const auto s = static_cast<double>(sequences);
        const double tokens = (1 - std::pow(chance, guesses + 1)) / (1 - chance);
        return s * tokens /
               (base + slope * s * (1 + guesses) + guesses * (model_base + model_slope * s));
      };
      double best = 0;
      for (int guesses = 0; guesses <= 8; ++guesses) best = std::max(best, rate(guesses));
      EXPECT_GT(rate(of_model(chance, cost, model_cost, sequences)), 0.87 * best)
          << chance << " for " << sequences;
    }
  }
}

TEST(ShareStep, NobodyWaitsForADraftModelThatIsRunForOthers) {
  const StepCost cost = learned(0.010, 0.0001, 8);
  const StepCost model_cost = learned(0.002, 0.00002, 8);
  const DraftWish eager{.chance = 0.95, .count_max = 8, .by_model = true};
  std::vector<DraftWish> wishes = {eager, eager, {}};
  share_step(wishes, cost, 3, 100, model_cost);
  EXPECT_EQ(wishes[0].count, 0) << "the third would wait a fifth longer";
  wishes[2].invests = true;
  share_step(wishes, cost, 3, 100, model_cost);
  EXPECT_GT(wishes[0].count, 1) << "the third waits to gain itself";
  // Unlikely ones do not go with the others.
  wishes = {eager, {.chance = 0.3, .count_max = 8, .by_model = true}};
  share_step(wishes, cost, 2, 100, learned(0.0003, 0.00001, 8));
  EXPECT_GT(wishes[0].count, wishes[1].count);
}

TEST(WorthReading, WhatTheRestOfAnAnswerMakesUpFor) {
  EXPECT_TRUE(worth_reading(990, 0.0001, 0.01, 40)) << "0.1 s, of 0.4 s";
  EXPECT_FALSE(worth_reading(1010, 0.0001, 0.01, 40));
  EXPECT_FALSE(worth_reading(990, 0.0001, 0.01, 39));
  EXPECT_TRUE(worth_reading(1 << 20, 0, 0.01, 1)) << "not measured";
  EXPECT_TRUE(worth_reading(1 << 20, 0.0001, 0, 1));
}

TEST(DraftOptions, NameWhatIsOutOfRange) {
  EXPECT_TRUE(validate(DraftOptions{}));
  EXPECT_TRUE(validate(DraftOptions{.tokens_max = 64}));
  for (const int32_t count : {-1, 65}) {
    const Status status = validate(DraftOptions{.tokens_max = count});
    ASSERT_FALSE(status);
    EXPECT_EQ(status.error().code, Code::kInvalidArgument);
    EXPECT_NE(status.error().message.find(std::to_string(count)), std::string::npos);
  }
}

}  // namespace
}  // namespace jige::serve
