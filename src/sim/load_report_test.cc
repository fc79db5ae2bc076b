#include "sim/load_report.h"

#include <gtest/gtest.h>

namespace jige::sim {
namespace {

RequestOutcome outcome(double start_s, double first_s, double end_s, int64_t output_tokens) {
  return {.start_s = start_s,
          .first_token_s = first_s,
          .end_s = end_s,
          .prompt_tokens = 10,
          .output_tokens = output_tokens};
}

TEST(LoadReport, QuantilesLieBetweenNeighbours) {
  const std::vector<double> values = {1, 2, 3, 4, 5};
  EXPECT_DOUBLE_EQ(quantile(values, 0), 1);
  EXPECT_DOUBLE_EQ(quantile(values, 0.5), 3);
  EXPECT_DOUBLE_EQ(quantile(values, 0.9), 4.6);
  EXPECT_DOUBLE_EQ(quantile(values, 1), 5);
  EXPECT_DOUBLE_EQ(quantile(std::vector<double>{7}, 0.99), 7);
}

TEST(LoadReport, SummarisesInAnyOrder) {
  std::vector<double> values;
  for (int i = 100; i >= 0; --i) values.push_back(i);
  const Summary summary = summarise(values);
  EXPECT_EQ(summary.count, 101);
  EXPECT_DOUBLE_EQ(summary.mean, 50);
  EXPECT_DOUBLE_EQ(summary.p50, 50);
  EXPECT_DOUBLE_EQ(summary.p90, 90);
  EXPECT_DOUBLE_EQ(summary.p99, 99);
  EXPECT_EQ(summarise({}).count, 0);
}

TEST(LoadReport, TokensComeWithGapsBetweenThem) {
  RequestOutcome one{.start_s = 1};
  for (const double now_s : {1.5, 2.0, 3.5}) one.token_came(now_s);
  EXPECT_EQ(one.output_tokens, 3);
  EXPECT_EQ(one.first_token_s, 1.5);
  EXPECT_EQ(one.end_s, 3.5);
  EXPECT_EQ(one.gaps_s, (std::vector<double>{0.5, 1.5}));
}

TEST(LoadReport, UsesTheUsualDefinitions) {
  std::vector<RequestOutcome> outcomes = {outcome(1, 1.5, 3.5, 5), outcome(2, 3, 6, 1)};
  outcomes[0].gaps_s = {0.5, 0.5, 0.5, 0.5};
  const LoadReport report = make_report(outcomes);
  EXPECT_EQ(report.succeeded, 2);
  EXPECT_DOUBLE_EQ(report.seconds, 5);
  EXPECT_DOUBLE_EQ(report.requests_per_s, 0.4);
  EXPECT_DOUBLE_EQ(report.output_tokens_per_s, 6 / 5.0);
  EXPECT_DOUBLE_EQ(report.tokens_per_s, 26 / 5.0);
  EXPECT_DOUBLE_EQ(report.ttft_s.mean, 0.75);
  EXPECT_EQ(report.tpot_s.count, 1) << "an answer of one token has none";
  EXPECT_DOUBLE_EQ(report.tpot_s.mean, 0.5);
  EXPECT_EQ(report.itl_s.count, 4);
  EXPECT_DOUBLE_EQ(report.e2e_s.mean, (2.5 + 4) / 2);
  EXPECT_DOUBLE_EQ(report.normalised_s.mean, (0.5 + 4) / 2);
  EXPECT_FALSE(report.goodput_per_s);
}

TEST(LoadReport, CountsFailuresByKindAndLeavesThemOutOfLatencies) {
  std::vector<RequestOutcome> outcomes = {outcome(0, 1, 2, 4), outcome(0, 0, 10, 0),
                                          outcome(0, 0, 1, 0), outcome(0, 0, 1, 0)};
  outcomes[1].failure = "timeout";
  outcomes[2].failure = outcomes[3].failure = "HTTP 429";
  const LoadReport report = make_report(outcomes);
  EXPECT_EQ(report.requests, 4);
  EXPECT_EQ(report.succeeded, 1);
  EXPECT_EQ(report.failures, (std::map<std::string, int64_t>{{"HTTP 429", 2}, {"timeout", 1}}));
  EXPECT_DOUBLE_EQ(report.e2e_s.mean, 2);
  EXPECT_DOUBLE_EQ(report.seconds, 10) << "time spent on what failed counts";
  EXPECT_DOUBLE_EQ(report.requests_per_s, 0.1);
}

TEST(LoadReport, GoodputCountsWhatKeepsEveryBound) {
  const std::vector<RequestOutcome> outcomes = {outcome(0, 0.1, 1, 10),   // fast
                                                outcome(0, 0.9, 1, 10),   // late first token
                                                outcome(0, 0.1, 10, 10),  // slow afterwards
                                                outcome(0, 0.1, 0.1, 1)};
  const auto bounds = parse_goodput("ttft=500,tpot=100", "--goodput");
  ASSERT_TRUE(bounds);
  const LoadReport report = make_report(outcomes, *bounds);
  ASSERT_TRUE(report.goodput_per_s);
  EXPECT_DOUBLE_EQ(*report.goodput_per_s, 2 / 10.0);
  EXPECT_DOUBLE_EQ(*make_report(outcomes, *parse_goodput("e2e=1000", "")).goodput_per_s, 0.3);
  EXPECT_DOUBLE_EQ(*make_report(outcomes, *parse_goodput("norm=150", "")).goodput_per_s, 0.3);
}

TEST(LoadReport, RefusesBoundsItCannotRead) {
  EXPECT_FALSE(parse_goodput("", "--goodput")->any());
  for (const char* bad : {"ttft", "ttft=", "ttft=0", "ttft=-5", "ttft=x", "itl=5", "ttft=5;tpot=6",
                          ",", "ttft=inf", "ttft=nan"}) {
    const auto bounds = parse_goodput(bad, "--goodput");
    ASSERT_FALSE(bounds) << bad;
    EXPECT_NE(bounds.error().message.find("--goodput"), std::string::npos);
  }
}

TEST(LoadReport, NothingGivesZeros) {
  const LoadReport report = make_report({});
  EXPECT_EQ(report.requests, 0);
  EXPECT_EQ(report.requests_per_s, 0);
  EXPECT_EQ(report.seconds, 0);
}

}  // namespace
}  // namespace jige::sim
