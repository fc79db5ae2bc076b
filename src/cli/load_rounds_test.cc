#include "cli/load_rounds.h"

#include <gtest/gtest.h>

namespace jige::cli {
namespace {

// One request after the other, each of 10 tokens: `seconds` long.
std::vector<sim::RequestOutcome> outcomes_of(std::initializer_list<double> seconds) {
  std::vector<sim::RequestOutcome> outcomes;
  double at_s = 5;
  for (const double length : seconds) {
    outcomes.push_back({.start_s = at_s,
                        .first_token_s = at_s + 0.1,
                        .end_s = at_s + length,
                        .prompt_tokens = 1,
                        .output_tokens = 10});
    at_s += length;
  }
  return outcomes;
}

TEST(LoadRounds, PoolsTheRequestsOfAllRounds) {
  LoadRounds rounds({});
  for (int64_t round = 0; round < 2; ++round) {
    for (const double rate : {1.0, 2.0}) {
      rounds.add(round, {.subject = "static", .rate = rate}, outcomes_of({2, 2, 8}));
      const LoadPoint& orca = rounds.add(round, {.subject = "orca", .rate = rate},
                                         round == 0 ? outcomes_of({1}) : outcomes_of({3, 3}));
      EXPECT_EQ(orca.report.requests, round + 1);
    }
  }
  const std::vector<LoadPoint> points = rounds.points();
  ASSERT_EQ(points.size(), 4u);
  EXPECT_EQ(points[0].subject, "static");
  EXPECT_EQ(points[1].subject, "static");
  EXPECT_EQ(points[1].rate, 2);
  EXPECT_EQ(points[2].subject, "orca");
  EXPECT_EQ(points[0].report.requests, 6);
  EXPECT_NEAR(points[0].report.seconds, 24, 1e-9);  // no gap between the rounds
  EXPECT_NEAR(points[2].report.requests_per_s, 3.0 / 7, 1e-9);
  EXPECT_NEAR(points[2].report.normalised_s.p50, 0.3, 1e-9);
  EXPECT_NEAR(points[2].report.ttft_s.p50, 0.1, 1e-9);
  ASSERT_EQ(points[2].rounds_p50_s.size(), 2u);
  EXPECT_NEAR(points[2].rounds_p50_s[0], 0.1, 1e-9);
  EXPECT_NEAR(points[2].rounds_p50_s[1], 0.3, 1e-9);
  ASSERT_EQ(rounds.rounds().size(), 2u);
  EXPECT_EQ(rounds.rounds()[1].size(), 4u);
}

TEST(LoadRounds, OneRoundHasNoSpread) {
  LoadRounds rounds({});
  rounds.add(0, {.subject = "orca", .rate = 1}, outcomes_of({1}));
  EXPECT_TRUE(rounds.points()[0].rounds_p50_s.empty());
}

}  // namespace
}  // namespace jige::cli
