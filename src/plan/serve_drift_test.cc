#include "plan/serve_drift.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "base/rng.h"

namespace jige::plan {
namespace {

// Prompts of 32 to 512 tokens, answers of 1 to 128, times `answer_factor`, at a rate.
class Load {
 public:
  explicit Load(uint64_t seed, double rate_per_s = 10) : rng_(seed), rate_per_s_(rate_per_s) {}

  // The next one comes, and ends at once.
  bool run(DriftDetector& drift, double answer_factor = 1, double rate_factor = 1) {
    drift.arrive(arrive(rate_factor));
    return drift.add(next(answer_factor));
  }

  double arrive(double rate_factor = 1) {
    return now_s_ -= std::log(1 - rng_.uniform()) / (rate_per_s_ * rate_factor);
  }

  EndedRequest next(double answer_factor = 1) {
    return {.prompt_tokens = 32 + static_cast<int64_t>(rng_.below(481)),
            .answer_tokens = static_cast<int64_t>(
                std::ceil(answer_factor * static_cast<double>(1 + rng_.below(128))))};
  }

 private:
  Rng rng_;
  const double rate_per_s_;
  double now_s_ = 0;
};

// As a plan has it.
PlannedLoad planned_load(double rate_per_s = 0, int requests = 400) {
  Load load(1000);
  std::vector<double> prompts, answers;
  for (int i = 0; i < requests; ++i) {
    const EndedRequest one = load.next();
    prompts.push_back(static_cast<double>(one.prompt_tokens));
    answers.push_back(static_cast<double>(one.answer_tokens));
  }
  return {length_quantiles(prompts), length_quantiles(answers), rate_per_s, requests};
}

TEST(Drift, TheDistanceIsThatOfAllStepsLookedAtOneByOne) {
  Rng rng(9);
  for (int trial = 0; trial < 200; ++trial) {
    std::vector<double> values, others;
    for (uint64_t i = 1 + rng.below(40); i > 0; --i) {
      values.push_back(static_cast<double>(rng.below(12)));
    }
    // Few lengths, each often: the quantiles are then steps, as the values are.
    const auto kinds = 1 + rng.below(4);
    for (size_t i = 0; i < kLengthQuantiles; ++i) {
      others.push_back(static_cast<double>(rng.below(kinds) * 5));
    }
    std::ranges::sort(values);
    std::ranges::sort(others);
    double most = 0;
    for (int at = -1; at <= 20; ++at) {
      double share = 0, other = 0;
      for (const double value : values) share += value <= at;
      share /= static_cast<double>(values.size());
      // Between two quantiles it rises evenly.
      for (size_t i = 1; i < others.size(); ++i) {
        const double begin = others[i - 1], end = others[i];
        const double part = end > begin ? std::clamp((at - begin) / (end - begin), 0.0, 1.0)
                                        : static_cast<double>(at >= end);
        other += part / static_cast<double>(others.size() - 1);
      }
      if (at < others.front()) other = 0;
      most = std::max(most, std::abs(share - other));
    }
    EXPECT_NEAR(length_distance(values, others), most, 1e-12) << trial;
  }
}

TEST(Drift, QuantilesGoFromTheLeastToTheGreatest) {
  EXPECT_EQ(length_quantiles({5}), std::vector<double>(kLengthQuantiles, 5));
  std::vector<double> lengths;
  for (int i = 0; i <= 64; ++i) lengths.push_back(64 - i);
  const std::vector<double> quantiles = length_quantiles(lengths);
  for (size_t i = 0; i < kLengthQuantiles; ++i)
    EXPECT_EQ(quantiles[i], 2.0 * static_cast<double>(i));
  EXPECT_EQ(length_distance({{5, 5, 5}}, std::vector<double>(kLengthQuantiles, 5)), 0);
  EXPECT_EQ(length_distance({{6, 6, 6}}, std::vector<double>(kLengthQuantiles, 5)), 1);
}

TEST(Drift, IsNotToldOfRequestsLikeThePlans) {
  for (uint64_t seed = 1; seed <= 24; ++seed) {
    Load load(seed);
    DriftDetector drift(planned_load(10));
    for (int i = 0; i < 1500; ++i) EXPECT_FALSE(load.run(drift)) << seed << ", " << i;
    EXPECT_EQ(drift.state().looks, (1500 - 256) / 32 + 1);
    EXPECT_NEAR(drift.state().rate_ratio, 1, 0.3);
    EXPECT_NEAR(drift.state().prompt_tokens_mean, 272, 40);
  }
}

// What twenty requests say of lengths is mostly chance; what is far off is told all the same.
TEST(Drift, APlanOfFewRequestsHasWiderThresholds) {
  for (uint64_t seed = 1; seed <= 12; ++seed) {
    Load load(seed);
    DriftDetector drift(planned_load(0, 20));
    for (int i = 0; i < 600; ++i) EXPECT_FALSE(load.run(drift)) << seed;
    EXPECT_GT(std::max(drift.state().prompt_distance, drift.state().answer_distance), 0.1);
    for (int i = 0; i < 300; ++i) load.run(drift, 4);
    EXPECT_TRUE(drift.state().drifted) << drift.state().answer_distance;
  }
}

TEST(Drift, IsToldOfLongerAnswersAndTakenBack) {
  Load load(2);
  DriftDetector drift(planned_load());
  for (int i = 0; i < 300; ++i) EXPECT_FALSE(load.run(drift));
  int told = 0;
  for (int i = 0; i < 300; ++i) told += load.run(drift, 1.6);
  EXPECT_EQ(told, 1);
  EXPECT_TRUE(drift.state().drifted);
  EXPECT_GT(drift.state().answer_distance, 0.3);
  EXPECT_LT(drift.state().prompt_distance, 0.14);
  EXPECT_EQ(drift.state().rate_ratio, 1) << "the plan has none";
  told = 0;
  for (int i = 0; i < 300; ++i) told += load.run(drift);
  EXPECT_EQ(told, 1);
  EXPECT_FALSE(drift.state().drifted);
}

TEST(Drift, IsToldOfOtherRates) {
  for (const double factor : {0.5, 2.0}) {
    Load load(3);
    DriftDetector drift(planned_load(10));
    for (int i = 0; i < 300; ++i) load.run(drift);
    EXPECT_FALSE(drift.state().drifted);
    for (int i = 0; i < 300; ++i) load.run(drift, 1, factor);
    EXPECT_TRUE(drift.state().drifted) << factor;
    EXPECT_NEAR(drift.state().rate_ratio / factor, 1, 0.25);
  }
}

// Requests that take a tenth of a second a token, from the first one on.
DriftState run_slowly(Load load, const PlannedLoad& planned, double rate_factor, int requests) {
  DriftDetector drift(planned);
  std::multimap<double, EndedRequest> under_way;  // by their ends
  bool told = false;
  for (int i = 0; i < requests; ++i) {
    const double now_s = load.arrive(rate_factor);
    while (!under_way.empty() && under_way.begin()->first <= now_s) {
      const EndedRequest ended = under_way.begin()->second;
      under_way.erase(under_way.begin());
      told |= drift.add(ended, std::ssize(under_way));
    }
    drift.arrive(now_s);
    const EndedRequest one = load.next();
    under_way.emplace(now_s + 0.1 * static_cast<double>(one.answer_tokens), one);
  }
  EXPECT_EQ(told, drift.state().drifted);
  return drift.state();
}

// Of 64 that are under way in the mean, those that have ended last came over half as long again.
TEST(Drift, IsNotToldOfTheRateWhereAnswersTakeLong) {
  for (const double rate_factor : {1.0, 2.0}) {
    const DriftState state = run_slowly(Load(5), planned_load(10), rate_factor, 3000);
    EXPECT_GT(state.looks, 60);
    EXPECT_NEAR(state.rate_ratio / rate_factor, 1, 0.2);
    EXPECT_EQ(state.drifted, rate_factor == 2);
  }
}

// When 256 have ended of 500 that have come, they are the short ones.
TEST(Drift, IsNotToldOfTheShortAnswersThatEndFirst) {
  for (uint64_t seed = 1; seed <= 8; ++seed) {
    const DriftState state = run_slowly(Load(seed, 40), planned_load(40), 1, 3000);
    EXPECT_FALSE(state.drifted) << seed;
    EXPECT_GT(state.looks, 50);
  }
}

// Between the thresholds it stays as it was, on whichever side that is.
TEST(Drift, DoesNotFlapBetweenTheThresholds) {
  const auto changes = [](double factor, bool from_drift) {
    Load load(4);
    DriftDetector drift(planned_load(), {.distance_high = 0.25, .distance_low = 0.08});
    for (int i = 0; i < 300; ++i) load.run(drift, from_drift ? 2 : 1);
    EXPECT_EQ(drift.state().drifted, from_drift);
    int told = 0;
    for (int i = 0; i < 3000; ++i) told += load.run(drift, factor);
    return told;
  };
  EXPECT_EQ(changes(1.2, false), 0) << "a distance of about 0.17";
  EXPECT_EQ(changes(1.2, true), 0);
}

// The requests that are known are those that the other plan was made for.
TEST(Drift, AnotherPlanIsLookedAtBesideTheSameRequests) {
  Load load(6);
  DriftDetector drift(planned_load(10));
  for (int i = 0; i < 600; ++i) load.run(drift, 3, 2);
  ASSERT_TRUE(drift.state().drifted);
  const RecentLoad recent = drift.recent();
  EXPECT_EQ(recent.ended.size(), 256);
  EXPECT_EQ(recent.arrivals_s.size(), 256);
  EXPECT_NEAR(recent.rate_per_s(), drift.state().rate_per_s, 1) << "some came behind the look";
  drift.replan(planned_for(recent, /*with_rate=*/true));
  EXPECT_FALSE(drift.state().drifted);
  EXPECT_EQ(drift.state().plans, 2);
  EXPECT_LT(drift.state().answer_distance, 0.05);
  EXPECT_EQ(drift.state().rate_ratio, 1);
  for (int i = 0; i < 1000; ++i) EXPECT_FALSE(load.run(drift, 3, 2)) << i;
  for (int i = 0; i < 400; ++i) load.run(drift);
  EXPECT_TRUE(drift.state().drifted) << "back at those of the first";
  drift.replan(planned_load(10));
  EXPECT_FALSE(drift.state().drifted);
}

// What is between the thresholds is no drift from a plan that has just come.
TEST(Drift, AnotherPlanBeginsWithoutDrift) {
  Load load(4);
  DriftDetector drift(planned_load(), {.distance_high = 0.25, .distance_low = 0.08});
  for (int i = 0; i < 300; ++i) load.run(drift, 2);
  for (int i = 0; i < 600; ++i) load.run(drift, 1.2);
  ASSERT_TRUE(drift.state().drifted) << "as it was";
  drift.replan(planned_load());
  EXPECT_GT(drift.state().answer_distance, 0.08);
  EXPECT_FALSE(drift.state().drifted);
}

TEST(Drift, WhatCameAtOnceHasNoRate) {
  DriftDetector drift(planned_load(10), {.window = 4, .step = 1});
  for (int i = 0; i < 8; ++i) {
    drift.arrive(7);
    drift.add({.prompt_tokens = 40 + 100 * (i % 4), .answer_tokens = 30 * (i % 4)});
  }
  EXPECT_EQ(drift.state().rate_per_s, 0);
  EXPECT_EQ(drift.state().rate_ratio, 1);
}

}  // namespace
}  // namespace jige::plan
