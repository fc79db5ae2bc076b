#include "plan/guess_costs.h"

#include <gtest/gtest.h>

#include <cmath>

#include "plan/guess_test_support.h"

namespace jige::plan {
namespace {

TEST(StepCost, LearnsThePriceOfARow) {
  EXPECT_NEAR(learned_cost(0.010, 0.0005, 8).price(1), 0.0005 / 0.0105, 0.012);
  EXPECT_NEAR(learned_cost(0.001, 0.002, 8).price(1), 0.002 / 0.003, 0.1);
  EXPECT_NEAR(learned_cost(0.001, 0.002, 8).price(30), 0.002 / 0.061, 0.01);
  EXPECT_LT(learned_cost(0.010, 0.0, 8).price(1), 0.012);
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
  StepCost cost = learned_cost(0.01, 0.003, 8);
  const double before = cost.price(1);
  for (int i = 0; i < 2000; ++i) cost.add(1, 0.013);
  EXPECT_NEAR(cost.price(1), before, 0.05);
}

TEST(StepCost, OneStepThatWasHeldUpChangesLittle) {
  StepCost cost = learned_cost(0.01, 0.0005, 8);
  const double before = cost.price(1);
  cost.add(1, 5.0);
  EXPECT_NEAR(cost.price(1), before, 0.05);
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

}  // namespace
}  // namespace jige::plan
