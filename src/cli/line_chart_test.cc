#include "cli/line_chart.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "base/xml_text.h"

namespace jige::cli {
namespace {

TEST(LineChart, TicksAreRoundAndInside) {
  EXPECT_EQ(axis_ticks(0, 10, 5), (std::vector<double>{0, 2, 4, 6, 8, 10}));
  EXPECT_EQ(axis_ticks(1.3, 9.2, 4), (std::vector<double>{2, 4, 6, 8}));
  EXPECT_EQ(axis_ticks(0, 1000, 8), (std::vector<double>{0, 200, 400, 600, 800, 1000}));
  for (const double tick : axis_ticks(-3e-7, 4e-7, 6)) {
    EXPECT_GE(tick, -3.1e-7);
    EXPECT_LE(tick, 4.1e-7);
  }
}

TEST(LineChart, ReplacesWhatMeansSomethingInXml) {
  EXPECT_EQ(xml_text("a<b>&\"c\"\n"), "a&lt;b&gt;&amp;&quot;c&quot;");
}

TEST(LineChart, DrawsEverySeriesInsideTheFrame) {
  LineChart chart{.title = "T & U", .x_label = "step", .y_label = "loss"};
  ChartSeries series{.name = "training", .color = "#123456", .label_last = true};
  for (int i = 1; i <= 5000; ++i) series.points.push_back({i * 1.0, 9 * std::exp(-i / 900.0)});
  series.points.push_back({5001, std::nan("")});
  chart.series = {series};
  const std::string svg = render_svg(chart);
  EXPECT_NE(svg.find("T &amp; U"), std::string::npos);
  EXPECT_NE(svg.find(">training<"), std::string::npos);
  EXPECT_EQ(svg.find("nan"), std::string::npos);
  // Thinned to about one point a pixel: 712 columns.
  const size_t path = svg.find("<path");
  const auto lines = std::count(svg.begin() + static_cast<ptrdiff_t>(path), svg.end(), 'L');
  EXPECT_GT(lines, 600);
  EXPECT_LT(lines, 730);
}

TEST(LineChart, LogTicksAreAsManyAsFit) {
  EXPECT_EQ(log_ticks(35, 72, 12), (std::vector<double>{40, 50, 60, 70}));
  EXPECT_EQ(log_ticks(3, 60, 12), (std::vector<double>{5, 10, 20, 50}));
  EXPECT_EQ(log_ticks(0.9, 1100, 5), (std::vector<double>{1, 10, 100, 1000}));
}

// On a logarithmic axis equal factors are equal distances, and zero has no place.
TEST(LineChart, DrawsLogarithms) {
  LineChart chart{.y_log = true};
  chart.series = {{.name = "a", .color = "#000000", .dots = true}};
  chart.series[0].points = {{1, 1}, {2, 10}, {3, 100}, {4, 0}};
  const std::string svg = render_svg(chart);
  std::vector<double> heights;
  for (size_t at = svg.find("cy=\""); at != std::string::npos; at = svg.find("cy=\"", at + 1)) {
    heights.push_back(std::stod(svg.substr(at + 4)));
  }
  ASSERT_EQ(heights.size(), 3u);
  EXPECT_NEAR(heights[0] - heights[1], heights[1] - heights[2], 0.2);
  EXPECT_GT(heights[0] - heights[1], 100);
  EXPECT_EQ(svg.find("inf"), std::string::npos);
  chart.series[0].points = {{1, 0}};
  EXPECT_EQ(render_svg(chart).find("inf"), std::string::npos);
}

TEST(LineChart, DrawsAnEmptyFrameWithoutPoints) {
  const std::string svg = render_svg(LineChart{.title = "nothing"});
  EXPECT_NE(svg.find("</svg>"), std::string::npos);
  EXPECT_EQ(svg.find("<path"), std::string::npos);
}

TEST(LineChart, DrawsAFlatLine) {
  LineChart chart{.series = {{.name = "flat", .color = "#000000", .points = {{3, 2}, {3, 2}}}}};
  const std::string svg = render_svg(chart);
  EXPECT_EQ(svg.find("nan"), std::string::npos);
  EXPECT_EQ(svg.find("inf"), std::string::npos);
}

// Where the first name of the legend stands.
std::string legend_place(const std::vector<ChartPoint>& points) {
  const LineChart chart{.series = {{.name = "NAME", .color = "#123456", .points = points}}};
  const std::string svg = render_svg(chart);
  const size_t end = svg.find("NAME");
  return svg.substr(svg.rfind("<text", end), end - svg.rfind("<text", end));
}

TEST(LineChart, PutsTheLegendWhereNoCurveIs) {
  const std::string falling = legend_place({{0, 9}, {1, 2}, {2, 1}});
  const std::string rising = legend_place({{0, 1}, {1, 2}, {2, 9}});
  const std::string arch = legend_place({{0, 1}, {0.2, 9}, {1.8, 9}, {2, 1}});
  EXPECT_NE(falling, rising);
  EXPECT_NE(arch, falling);
  EXPECT_NE(arch, rising);
  EXPECT_NE(falling.find("y=\"80"), std::string::npos) << falling;
  EXPECT_NE(rising.find("y=\"80"), std::string::npos) << rising;
  EXPECT_EQ(arch.find("y=\"80"), std::string::npos) << arch << ": the lower corners are free";
}

}  // namespace
}  // namespace jige::cli
