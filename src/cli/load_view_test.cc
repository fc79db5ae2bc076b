#include "cli/load_view.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace jige::cli {
namespace {

using ::testing::HasSubstr;

LoadPoint point_of(const std::string& subject, double rate, double latency_s) {
  std::vector<sim::RequestOutcome> outcomes(4);
  for (size_t i = 0; i < 4; ++i) {
    const double start_s = static_cast<double>(i) / rate;
    outcomes[i] = {.start_s = start_s,
                   .first_token_s = start_s + latency_s,
                   .end_s = start_s + 10 * latency_s,
                   .prompt_tokens = 5,
                   .output_tokens = 10,
                   .gaps_s = {latency_s}};
  }
  outcomes[3].failure = "HTTP 429";
  return {.subject = subject, .rate = rate, .report = sim::make_report(outcomes)};
}

TEST(LoadView, NamesTheLoad) {
  EXPECT_EQ(load_text({.rate = 2.5}), "2.5 /s");
  EXPECT_EQ(load_text({.rate = 0}), "all at once");
  EXPECT_EQ(load_text({.rate = 1, .users = 8}), "8 users");
}

TEST(LoadView, TablesShowMillisecondsAndFailures) {
  const LoadPoint point = point_of("orca", 2, 0.05);
  EXPECT_THAT(report_text(point), HasSubstr("3 of 4 requests"));
  EXPECT_THAT(report_text(point), HasSubstr("failed: 1 × HTTP 429"));
  EXPECT_THAT(report_text(point), ::testing::ContainsRegex("TTFT.  +50  +50  +50  +50"));
  const std::string table = points_table(std::vector<LoadPoint>{point, point_of("static", 4, 1)});
  EXPECT_THAT(table, HasSubstr("static"));
  EXPECT_EQ(table.find("good/s"), std::string::npos);
}

TEST(LoadView, JsonHoldsEveryFigure) {
  LoadPoint point = point_of("orca", 2, 0.05);
  point.report.goodput_per_s = 1.5;
  const Json json = point_json(point);
  EXPECT_EQ(json["subject"], "orca");
  EXPECT_EQ(json["rate_per_s"], 2.0);
  EXPECT_EQ(json["failures"]["HTTP 429"], 1);
  EXPECT_EQ(json["goodput_per_s"], 1.5);
  for (const char* name : {"ttft_s", "tpot_s", "itl_s", "e2e_s", "normalised_s"}) {
    for (const char* part : {"count", "mean", "p50", "p90", "p99"}) {
      EXPECT_TRUE(json[name].contains(part)) << name << part;
    }
  }
}

TEST(LoadView, DrawsACurveAPolicy) {
  std::vector<LoadPoint> points = {point_of("static", 1, 0.1), point_of("static", 2, 0.4),
                                   point_of("orca", 1, 0.05), point_of("orca", 2, 0.06)};
  points.push_back({.subject = "empty"});
  const LineChart chart = load_chart(points, "t", "on a machine");
  ASSERT_EQ(chart.series.size(), 2u);
  EXPECT_EQ(chart.series[0].name, "static");
  ASSERT_EQ(chart.series[1].points.size(), 2u);
  EXPECT_DOUBLE_EQ(chart.series[1].points[0].y, 50);
  EXPECT_THAT(render_svg(chart), HasSubstr("on a machine"));
}

}  // namespace
}  // namespace jige::cli
