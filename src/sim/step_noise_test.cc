#include "sim/step_noise.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

namespace jige::sim {
namespace {

// Turns of 1 ms that one in fifty times take 8 more in the mean, and of 64 ms, of which half do.
std::vector<TimedTurn> disturbed_turns() {
  std::vector<TimedTurn> turns;
  Rng rng(3);
  for (int i = 0; i < 4000; ++i) {
    const bool is_long = i % 2 == 0;
    const double usual_s = is_long ? 0.064 : 0.001;
    const bool hit = rng.uniform() < (is_long ? 0.5 : 0.02);
    // All differ a little: steps of a distribution are no business of a few quantiles.
    const double more_s = 1e-5 * rng.uniform() + (hit ? 0.016 * rng.uniform() : 0);
    turns.push_back({usual_s, usual_s + more_s});
  }
  return turns;
}

TEST(StepNoise, ShortForwardsAreHitSeldomAndByMuch) {
  const StepNoise noise = noise_of(disturbed_turns());
  ASSERT_EQ(noise.groups.size(), 2u) << "turns alike stay together";
  EXPECT_NEAR(noise.mean(0.001), 1 + 0.02 * 8, 0.05);
  EXPECT_NEAR(noise.mean(0.064), 1 + 0.5 * 0.125, 0.01);
  EXPECT_NEAR(noise.group_of(0.001)->at(0.9), 1, 0.02);
  EXPECT_GT(noise.group_of(0.001)->at(0.995), 9);
  EXPECT_NEAR(noise.group_of(0.064)->at(0.9), 1.2, 0.02);
  // Between the groups it is of the longer one, and beyond them of the last.
  EXPECT_EQ(noise.group_of(0.002), noise.group_of(0.064));
  EXPECT_EQ(noise.group_of(9), noise.group_of(0.064));
}

TEST(StepNoise, WhatIsDrawnIsDistributedAsWhatWasMeasured) {
  const std::vector<TimedTurn> turns = disturbed_turns();
  const StepNoise noise = noise_of(turns);
  Rng rng(5);
  for (const double usual_s : {0.001, 0.064}) {
    std::vector<double> drawn, measured;
    for (const TimedTurn& turn : turns) {
      if (turn.usual_s == usual_s) measured.push_back(turn.seconds / usual_s);
    }
    double sum = 0;
    for (size_t i = 0; i < 20'000; ++i) {
      drawn.push_back(noise.draw(usual_s, rng));
      sum += drawn.back();
    }
    EXPECT_NEAR(sum / 20'000 / noise.mean(usual_s), 1, 0.02);
    std::ranges::sort(drawn);
    std::ranges::sort(measured);
    for (const double share : {0.05, 0.25, 0.75, 0.95, 0.99}) {
      const double at = drawn[static_cast<size_t>(share * static_cast<double>(drawn.size()))];
      const auto up_to = std::ranges::upper_bound(measured, at) - measured.begin();
      EXPECT_NEAR(static_cast<double>(up_to) / static_cast<double>(measured.size()), share, 0.015)
          << usual_s;
    }
  }
}

TEST(StepNoise, GroupsHaveEnoughTurnsForATail) {
  std::vector<TimedTurn> turns;
  for (int i = 1; i <= 5000; ++i) turns.push_back({1e-3 * i, 1e-3 * i});
  EXPECT_EQ(noise_of(turns).groups.size(), 6u);
  turns.resize(450);
  EXPECT_EQ(noise_of(turns).groups.size(), 2u);
  turns.resize(10);
  const StepNoise few = noise_of(turns);
  ASSERT_EQ(few.groups.size(), 1u);
  EXPECT_DOUBLE_EQ(few.mean(0.5), 1);
  Rng rng(1);
  EXPECT_DOUBLE_EQ(noise_of({}).draw(1, rng), 1);
  EXPECT_DOUBLE_EQ(noise_of({}).mean(1), 1);
}

TEST(StepNoise, SharesGoFromTheLeastToTheMost) {
  const auto shares = noise_shares();
  EXPECT_EQ(shares.front(), 0);
  EXPECT_EQ(shares.back(), 1);
  EXPECT_TRUE(std::ranges::is_sorted(shares));
  NoiseGroup group;
  for (const double share : shares) group.quantiles.push_back(1 + share);
  for (const double share : {0.0, 0.003, 0.4, 0.9999, 1.0}) {
    EXPECT_NEAR(group.at(share), 1 + share, 1e-12);
  }
  EXPECT_NEAR(group.mean(), 1.5, 1e-12);
}

}  // namespace
}  // namespace jige::sim
