// Line charts as SVG: axes with round numbers, a grid, a legend; no script, no font files.
//
//   LineChart chart{.title = "Loss", .x_label = "step", .y_label = "nats per token"};
//   chart.series.push_back({.name = "training", .points = {{1, 9.0}, {2, 7.5}}});
//   write_file_atomic("loss.svg", render_svg(chart));
//
// A series of more points than pixels is thinned to the mean of each pixel's points. Points that
// are not finite are left out. Threads: values.
#pragma once

#include <string>
#include <vector>

namespace jige::cli {

struct ChartPoint {
  double x = 0;
  double y = 0;
};

struct ChartSeries {
  std::string name;
  std::string color;        // "#1f6feb"
  double stroke = 1.8;      // line width in pixels
  bool dots = false;        // a dot at every point
  bool label_last = false;  // writes the last value at its end
  std::vector<ChartPoint> points;
};

struct LineChart {
  std::string title;
  std::string subtitle;
  std::string x_label;
  std::string y_label;
  bool y_log = false;  // logarithmic; points at or below zero are left out
  std::vector<ChartSeries> series = {};
};

// A whole SVG document of 800 by 440 pixels. The legend stands in the corner where it covers least.
std::string render_svg(const LineChart& chart);

// Round numbers (1, 2 or 5 times a power of ten) that cover [low, high], `count` of them or fewer
// inside. REQUIRES: low < high, count >= 2.
std::vector<double> axis_ticks(double low, double high, int count);

// Multiples of powers of ten inside [low, high]: 1 to 9 times, or 1, 2 and 5 times, or the powers
// alone, whatever gives at most `count` first. REQUIRES: 0 < low < high.
std::vector<double> log_ticks(double low, double high, int count);

}  // namespace jige::cli
