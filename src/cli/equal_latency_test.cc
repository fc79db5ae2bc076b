#include "cli/equal_latency.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace jige::cli {
namespace {

using ::testing::HasSubstr;

LoadPoint subject_point(const std::string& subject, double rate, double p50_ms, double p99_ms) {
  LoadPoint point{.subject = subject, .rate = rate};
  point.report.requests_per_s = rate;
  point.report.normalised_s = {
      .count = 10, .mean = p50_ms / 1000, .p50 = p50_ms / 1000, .p99 = p99_ms / 1000};
  return point;
}

// Lowest latencies are 4 ms (p50) and 10 ms (p99).
std::vector<LoadPoint> example_points() {
  return {subject_point("static", 2, 7, 200), subject_point("static", 4, 9, 400),
          subject_point("orca", 2, 4, 10), subject_point("orca", 8, 6, 12),
          subject_point("orca", 12, 10, 60)};
}

TEST(EqualLatency, IsReadFromTheCurves) {
  const auto loads = equal_latency(example_points());
  ASSERT_TRUE(loads);
  EXPECT_EQ(loads->subjects, (std::vector<std::string>{"static", "orca"}));
  ASSERT_EQ(loads->rows.size(), 9u);
  // 6 ms: static has nothing within; orca's point is exactly there.
  EXPECT_NEAR(loads->rows[0].bound_s, 0.006, 1e-12);
  EXPECT_EQ(loads->rows[0].carried[0].known, Known::kLess);
  EXPECT_NEAR(loads->rows[0].carried[1].requests_per_s, 8, 1e-9);
  // 8 ms: half way from 7 to 9 and from 6 to 10.
  EXPECT_NEAR(loads->rows[1].carried[0].requests_per_s, 3, 1e-9);
  EXPECT_NEAR(loads->rows[1].carried[1].requests_per_s, 10, 1e-9);
  // 16 ms: everything that was measured, and perhaps more.
  EXPECT_NEAR(loads->rows[2].carried[0].requests_per_s, 4, 1e-9);
  EXPECT_EQ(loads->rows[2].carried[1].known, Known::kMore);
  // 40 ms of p99: 28 of 48 ms from 12 to 60.
  EXPECT_EQ(loads->rows[3].statistic, "mean");
  EXPECT_EQ(loads->rows[8].statistic, "p99");
  EXPECT_NEAR(loads->rows[8].carried[1].requests_per_s, 8 + 4 * 28.0 / 48, 1e-9);
}

TEST(EqualLatency, TableNamesMultiplesOfTheFirst) {
  const std::string table = equal_latency_table(*equal_latency(example_points()));
  EXPECT_THAT(table, HasSubstr("10 /s, 3.3 x"));
  EXPECT_THAT(table, HasSubstr("< 2 /s"));
  EXPECT_THAT(table, HasSubstr("8 /s, > 4.0 x"));
  EXPECT_THAT(table, HasSubstr("> 4 /s  "));  // 16 ms: two ends say nothing of each other
  EXPECT_THAT(table, HasSubstr("> 12 /s\n"));
  const Json json = equal_latency_json(*equal_latency(example_points()));
  EXPECT_EQ(json["equal_latency"][0]["carried"]["static"]["less"], true);
  EXPECT_EQ(json["equal_latency"][2]["carried"]["static"]["more"], true);
}

TEST(EqualLatency, EndsOfCurvesGiveBounds) {
  std::vector<LoadPoint> points = example_points();
  points[4] = subject_point("orca", 12, 7, 60);  // at 8 ms more than 12, static 3
  EXPECT_THAT(equal_latency_table(*equal_latency(points)), HasSubstr("> 12 /s, > 4.0 x"));
  points[4] = subject_point("orca", 12, 10, 60);
  points[1] = subject_point("static", 4, 7.5, 400);  // at 8 ms more than 4, orca 10
  EXPECT_THAT(equal_latency_table(*equal_latency(points)), HasSubstr("10 /s, < 2.5 x"));
}

TEST(EqualLatency, RoundsGiveTheSpread) {
  std::vector<std::vector<LoadPoint>> rounds(3, example_points());
  rounds[1][0].report.normalised_s.p50 =
      0.0074;  // static at 2 /s: six sixteenths of the way to 4 /s
  rounds[2][0].report.normalised_s.p50 = 0.0085;  // carries less than any load of the round
  const auto loads = equal_latency(example_points(), rounds);
  ASSERT_TRUE(loads);
  const LoadsAtLatency& row = loads->rows[1];  // 8 ms
  ASSERT_EQ(row.round_multiples[1].size(), 2u);
  EXPECT_NEAR(row.round_multiples[1][0], 10 / 3.0, 1e-9);
  EXPECT_NEAR(row.round_multiples[1][1], 10 / 2.75, 1e-9);
  EXPECT_THAT(equal_latency_table(*loads), HasSubstr("10 /s, 3.3 x (3.3 to 3.6)"));
  EXPECT_EQ(
      equal_latency_json(*loads)["equal_latency"][1]["carried"]["orca"]["round_multiples"].size(),
      2u);
}

TEST(EqualLatency, NeedsTwoOpenLoopSubjects) {
  std::vector<LoadPoint> points = {subject_point("orca", 2, 4, 10),
                                   subject_point("orca", 8, 6, 12)};
  EXPECT_FALSE(equal_latency(points));
  EXPECT_FALSE(equal_latency({}));
  points = example_points();
  points[0].users = 3;
  EXPECT_FALSE(equal_latency(points));
}

}  // namespace
}  // namespace jige::cli
