#include "cli/line_chart.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/bytes.h"
#include "base/xml_text.h"
#include "cli/svg_text.h"

namespace jige::cli {
namespace {

constexpr double kChartWidth = 800, kChartHeight = 440;
constexpr double kChartLeft = 64, kChartRight = 776, kChartTop = 64, kChartBottom = 388;

struct Axis {
  double low = 0, high = 1;
  double pixel_low = 0, pixel_high = 1;
  bool log = false;  // low and high are logarithms
  std::vector<double> ticks = {};

  double pixel(double value) const {
    if (log) value = std::log10(value);
    return pixel_low + (value - low) / (high - low) * (pixel_high - pixel_low);
  }
};

bool drawable(const ChartPoint& point) { return std::isfinite(point.x) && std::isfinite(point.y); }
bool drawable(const ChartPoint& point, const Axis& y_axis) {
  return drawable(point) && (!y_axis.log || point.y > 0);
}

// One point per horizontal pixel at most, the mean of those that fall on it.
std::vector<ChartPoint> thinned(const std::vector<ChartPoint>& points, const Axis& x_axis,
                                const Axis& y_axis) {
  std::vector<ChartPoint> out;
  double column = -1e300;
  ChartPoint sum;
  int count = 0;
  const auto flush = [&] {
    if (count > 0) out.push_back({sum.x / count, sum.y / count});
    sum = {};
    count = 0;
  };
  for (const ChartPoint& point : points) {
    if (!drawable(point, y_axis)) continue;
    const double now = std::floor(x_axis.pixel(point.x));
    if (now != column) flush();
    column = now;
    sum.x += point.x;
    sum.y += point.y;
    ++count;
  }
  flush();
  return out;
}

std::string tick_text(double value) {
  if (std::fabs(value) >= 10000) {
    std::string text = format_count(value);
    std::erase(text, ' ');
    return text;
  }
  return fmt::format("{:.10g}", value);
}

Axis make_axis(double low, double high, double pixel_low, double pixel_high, int tick_count) {
  if (!(low < high)) {
    const double room = std::max(std::fabs(low) * 0.1, 0.5);
    low -= room;
    high += room;
  }
  Axis axis{.low = low, .high = high, .pixel_low = pixel_low, .pixel_high = pixel_high};
  axis.ticks = axis_ticks(low, high, tick_count);
  return axis;
}

// From `low`, which is above zero, to `high`.
Axis make_log_axis(double low, double high, double pixel_low, double pixel_high, int tick_count) {
  low /= 1.1;
  high *= 1.1;
  return {.low = std::log10(low),
          .high = std::log10(high),
          .pixel_low = pixel_low,
          .pixel_high = pixel_high,
          .log = true,
          .ticks = log_ticks(low, high, tick_count)};
}

std::string draw_frame(const LineChart& chart, const Axis& x, const Axis& y) {
  std::string svg;
  svg += svg_text(kChartLeft, 26, kSvgInk, "font-size=\"17\" font-weight=\"600\"", chart.title);
  svg += svg_text(kChartLeft, 46, kSvgFaint, "font-size=\"12\"", chart.subtitle);
  for (const double tick : y.ticks) {
    const double at = y.pixel(tick);
    svg +=
        fmt::format("<line x1=\"{}\" x2=\"{}\" y1=\"{:.1f}\" y2=\"{:.1f}\" stroke=\"#d8dee4\"/>\n",
                    kChartLeft, kChartRight, at, at);
    svg += svg_text(kChartLeft - 8, at + 4, kSvgFaint, "text-anchor=\"end\"", tick_text(tick));
  }
  for (const double tick : x.ticks) {
    const double at = x.pixel(tick);
    svg += fmt::format("<line x1=\"{:.1f}\" x2=\"{:.1f}\" y1=\"{}\" y2=\"{}\" stroke=\"{}\"/>\n",
                       at, at, kChartBottom, kChartBottom + 5, kSvgFaint);
    svg += svg_text(at, kChartBottom + 19, kSvgFaint, "text-anchor=\"middle\"", tick_text(tick));
  }
  svg += fmt::format("<line x1=\"{}\" x2=\"{}\" y1=\"{}\" y2=\"{}\" stroke=\"{}\"/>\n", kChartLeft,
                     kChartRight, kChartBottom, kChartBottom, kSvgFaint);
  svg += svg_text((kChartLeft + kChartRight) / 2, kChartHeight - 12, kSvgInk,
                  "text-anchor=\"middle\"", chart.x_label);
  const double middle = (kChartTop + kChartBottom) / 2;
  svg += fmt::format(
      "<text transform=\"translate(18 {:.1f}) rotate(-90)\" text-anchor=\"middle\" "
      "fill=\"{}\">{}</text>\n",
      middle, kSvgInk, xml_text(chart.y_label));
  return svg;
}

std::string draw_series(const ChartSeries& series, const Axis& x, const Axis& y) {
  const std::vector<ChartPoint> points = thinned(series.points, x, y);
  if (points.empty()) return "";
  std::string path, dots;
  for (const ChartPoint& point : points) {
    const double px = x.pixel(point.x);
    const double py = y.pixel(point.y);
    path += fmt::format("{}{:.1f} {:.1f}", path.empty() ? "M" : "L", px, py);
    if (series.dots) {
      dots += fmt::format("<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"2.6\" fill=\"{}\"/>\n", px, py,
                          series.color);
    }
  }
  std::string svg = fmt::format(
      "<path d=\"{}\" fill=\"none\" stroke=\"{}\" stroke-width=\"{}\" "
      "stroke-linejoin=\"round\"/>\n",
      path, series.color, series.stroke);
  svg += dots;
  if (series.label_last) {
    svg +=
        svg_text(x.pixel(points.back().x) - 2, y.pixel(points.back().y) - 9, series.color.c_str(),
                 "text-anchor=\"end\" font-weight=\"600\"", fmt::format("{:.3f}", points.back().y));
  }
  return svg;
}

struct Corner {
  double left = 0, top = 0;  // of the legend's box
};

constexpr double kLegendWidth = 152;
constexpr double kLegendRow = 19;

// How much of the curves a box hides, in places a few pixels apart.
int hidden(const LineChart& chart, const Axis& x, const Axis& y, Corner box, double height) {
  int count = 0;
  for (const ChartSeries& series : chart.series) {
    const std::vector<ChartPoint> points = thinned(series.points, x, y);
    for (size_t i = 0; i < points.size(); ++i) {
      const ChartPoint& from = points[i == 0 ? 0 : i - 1];
      const double px = x.pixel(from.x), py = y.pixel(from.y);
      const double dx = x.pixel(points[i].x) - px, dy = y.pixel(points[i].y) - py;
      const int steps = 1 + static_cast<int>(std::hypot(dx, dy) / 4);
      for (int k = 1; k <= steps; ++k) {
        const double across = px + dx * k / steps - box.left, down = py + dy * k / steps - box.top;
        count += across >= 0 && across <= kLegendWidth && down >= 0 && down <= height;
      }
    }
  }
  return count;
}

std::string draw_legend(const LineChart& chart, const Axis& x, const Axis& y) {
  const auto shown = [](const ChartSeries& s) { return !s.name.empty() && !s.points.empty(); };
  const auto rows = std::count_if(chart.series.begin(), chart.series.end(), shown);
  if (rows == 0) return "";
  const double height = kLegendRow * static_cast<double>(rows) + 2;
  Corner best;
  int hidden_least = std::numeric_limits<int>::max();
  for (const double top : {kChartTop + 2.0, kChartBottom - 6.0 - height}) {
    for (const double left : {kChartRight - 156.0, kChartLeft + 10.0}) {
      const int count = hidden(chart, x, y, {left, top}, height);
      if (count < hidden_least) best = {left, top}, hidden_least = count;
    }
  }
  // Curves behind it fade, so that names can be read.
  std::string svg = fmt::format(
      "<rect x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" fill=\"#ffffff\" "
      "fill-opacity=\"0.85\"/>\n",
      best.left, best.top, kLegendWidth, height);
  const double left = best.left + 6;
  double row = best.top + 14;
  for (const ChartSeries& series : chart.series) {
    if (!shown(series)) continue;
    svg += fmt::format(
        "<line x1=\"{}\" x2=\"{}\" y1=\"{}\" y2=\"{}\" stroke=\"{}\" "
        "stroke-width=\"3\"/>\n",
        left, left + 24, row - 4, row - 4, series.color);
    svg += svg_text(left + 32, row, kSvgInk, "", series.name);
    row += kLegendRow;
  }
  return svg;
}

}  // namespace

std::vector<double> axis_ticks(double low, double high, int count) {
  const double rough = (high - low) / count;
  const double power = std::pow(10.0, std::floor(std::log10(rough)));
  double step = power;
  for (const double factor : {1.0, 2.0, 5.0, 10.0}) {
    step = factor * power;
    if (step >= rough * 0.999) break;
  }
  std::vector<double> ticks;
  const double first = std::ceil(low / step - 1e-9);
  for (int i = 0; i <= 2 * count; ++i) {
    const double tick = (first + i) * step;
    if (tick > high + step * 1e-6) break;
    ticks.push_back(tick == 0 ? 0 : tick);
  }
  return ticks;
}

std::vector<double> log_ticks(double low, double high, int count) {
  static const std::vector<double> kFactors[] = {{1, 2, 3, 4, 5, 6, 7, 8, 9}, {1, 2, 5}, {1}};
  std::vector<double> ticks;
  for (const std::vector<double>& factors : kFactors) {
    ticks.clear();
    for (double power = std::pow(10.0, std::floor(std::log10(low))); power <= high; power *= 10) {
      for (const double factor : factors) {
        const double tick = factor * power;
        if (low <= tick && tick <= high) ticks.push_back(tick);
      }
    }
    if (static_cast<int>(ticks.size()) <= count) break;
  }
  return ticks;
}

std::string render_svg(const LineChart& chart) {
  constexpr double kInfinite = std::numeric_limits<double>::infinity();
  double x_low = kInfinite, x_high = -kInfinite, y_low = kInfinite, y_high = -kInfinite;
  for (const ChartSeries& series : chart.series) {
    for (const ChartPoint& point : series.points) {
      if (!drawable(point) || (chart.y_log && point.y <= 0)) continue;
      x_low = std::min(x_low, point.x);
      x_high = std::max(x_high, point.x);
      y_low = std::min(y_low, point.y);
      y_high = std::max(y_high, point.y);
    }
  }
  if (x_low > x_high) x_low = y_low = 0, x_high = y_high = 1;
  const double room = (y_high - y_low) * 0.05;
  const Axis x = make_axis(x_low, x_high, kChartLeft, kChartRight, 8);
  const bool log = chart.y_log && y_low > 0;
  const Axis y = log ? make_log_axis(y_low, y_high, kChartBottom, kChartTop, 12)
                     : make_axis(y_low - room, y_high + room, kChartBottom, kChartTop, 6);
  std::string svg = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0} {1}\" width=\"{0}\" "
      "height=\"{1}\" font-family=\"system-ui, sans-serif\" font-size=\"12\">\n"
      "<rect width=\"{0}\" height=\"{1}\" rx=\"8\" fill=\"#ffffff\"/>\n",
      kChartWidth, kChartHeight);
  svg += draw_frame(chart, x, y);
  for (const ChartSeries& series : chart.series) svg += draw_series(series, x, y);
  return svg + draw_legend(chart, x, y) + "</svg>\n";
}

}  // namespace jige::cli
