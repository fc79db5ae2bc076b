#include "cli/cluster_view.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "cli/cluster_flags.h"
#include "cli/cluster_page.h"
#include "cli/flags.h"
#include "cli/heat_map.h"

namespace jige::cli {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

ClusterPoint policy_point(const char* policy, double load, std::vector<double> jct_s) {
  ClusterPoint point{.policy = policy, .load = load, .runs = {}};
  for (const double seconds : jct_s) {
    cluster::ScheduleReport report;
    report.jct_mean_s = seconds;
    report.jct_p99_s = 3 * seconds;
    point.runs.push_back(report);
  }
  return point;
}

TEST(ClusterView, ComparesTheSameJobsAtTheSameLoad) {
  const std::vector<ClusterPoint> points = {policy_point("srtf", 0.5, {100, 200}),
                                            policy_point("greedy", 0.5, {80, 160}),
                                            policy_point("greedy", 0.9, {1, 1})};
  const std::string table = cluster_table(points, "srtf");
  EXPECT_THAT(table, HasSubstr("-20.0 ±0.0%"));
  EXPECT_THAT(table, HasSubstr("mean vs srtf"));
  const Json json = cluster_json(points[1], points, "srtf");
  EXPECT_NEAR(json["against"]["jct_mean_change"]["mean"].get<double>(), -0.2, 1e-12);
  EXPECT_EQ(json["runs"].size(), 2u);
  EXPECT_FALSE(cluster_json(points[2], points, "srtf").contains("against"));
  EXPECT_FALSE(cluster_json(points[0], points, "srtf").contains("against"));
}

TEST(ClusterView, OneSeedHasNoInterval) {
  const std::vector<ClusterPoint> points = {policy_point("srtf", 0.5, {100})};
  EXPECT_THAT(cluster_table(points, "srtf"), Not(HasSubstr("±")));
  EXPECT_TRUE(cluster_json(points[0], points, "srtf")["jct_mean_s"]["ci95"].is_null());
}

TEST(ClusterView, TimesAreShort) {
  EXPECT_EQ(short_time(12.3), "12.3 s");
  EXPECT_EQ(short_time(600), "10 min");
  EXPECT_EQ(short_time(7200), "2 h");
  EXPECT_EQ(short_time(864'000), "10 d");
}

TEST(HeatMap, DrawsARowAThing) {
  HeatMap map{.title = "a < b", .subtitle = "s", .x_label = "hours"};
  map.rows = {{"leaf 0", {0, 0.5, 1}}, {"leaf 1", {0.25}}};
  const std::string svg = render_svg(map);
  EXPECT_THAT(svg, HasSubstr("a &lt; b"));
  EXPECT_THAT(svg, HasSubstr("<title>leaf 0 50 %</title>"));
  EXPECT_THAT(svg, HasSubstr("<title>leaf 1 25 %</title>"));
  EXPECT_THAT(svg, HasSubstr("#b3000c"));
  map.rows.resize(100);
  EXPECT_THAT(render_svg(map), HasSubstr("the first 64 of 100 rows"));
}

// The page is whole and asks nobody else for anything.
TEST(ClusterPage, HoldsTableAndPictures) {
  const cluster::ClusterSpec spec{.leaf_count = 2, .nodes_per_leaf = 2, .gpus_per_node = 2};
  cluster::Recorder record(spec, true);
  record.held(0, cluster::kSecond, 8);
  const std::vector<cluster::LinkLoad> loads = {{0, 5e9}, {4, 5e9}};
  record.moved(0, cluster::kSecond, 1, loads);
  const std::vector<ClusterPoint> points = {policy_point("srtf", 0.5, {100, 200})};
  const std::vector<ClusterPicture> pictures = {
      {.policy = "srtf", .load = 0.5, .jct_s = {50, 150}, .record = record}};
  const std::string html = render_page({.scene = "SIMULATED & small",
                                        .base = "srtf",
                                        .seed_count = 2,
                                        .points = points,
                                        .pictures = pictures,
                                        .spec = spec});
  EXPECT_THAT(html, HasSubstr("SIMULATED &amp; small"));
  EXPECT_THAT(html, HasSubstr("Congestion: srtf"));
  EXPECT_THAT(html, HasSubstr("<title>cards of 0 100 %</title>"));
  EXPECT_THAT(html, HasSubstr("<title>leaf 0 50 %</title>"));
  EXPECT_THAT(html, Not(HasSubstr("<script")));
  EXPECT_THAT(html, Not(HasSubstr("href=")));
  EXPECT_TRUE(html.ends_with("</html>\n"));
}

TEST(ClusterFlags, SaysWhatIsWrong) {
  const auto error_of = [](std::vector<std::string> words) {
    ClusterFlags cluster;
    Flags flags("cluster simulate");
    cluster.declare(flags);
    EXPECT_TRUE(flags.parse(words));
    const auto scene = cluster.scene();
    return scene ? "" : scene.error().message;
  };
  EXPECT_EQ(error_of({}), "");
  EXPECT_THAT(error_of({"--cluster", "8"}), HasSubstr("--cluster: \"8\" is no cluster"));
  EXPECT_THAT(error_of({"--sizes", "0"}), HasSubstr("--sizes"));
  EXPECT_THAT(error_of({"--lengths", "-1"}), HasSubstr("--lengths"));
  EXPECT_THAT(error_of({"--models", "big"}), HasSubstr("--models"));
  EXPECT_THAT(error_of({"--contention", "table"}), HasSubstr("needs --table FILE"));
  EXPECT_THAT(error_of({"--trace", "/nowhere"}), HasSubstr("/nowhere"));
  for (const char* loads : {"", "0.5,", "0.5,x", "-1", "0", "99"}) {
    EXPECT_FALSE(read_loads(loads, "--loads")) << loads;
  }
  EXPECT_EQ(*read_loads("0.5,1.1", "--loads"), (std::vector<double>{0.5, 1.1}));
}

}  // namespace
}  // namespace jige::cli
