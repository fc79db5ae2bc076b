#include "cli/heat_map.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/xml_text.h"
#include "cli/line_chart.h"
#include "cli/svg_text.h"

namespace jige::cli {
namespace {

constexpr double kMapWidth = 800, kMapLeft = 110, kMapRight = 776, kMapTop = 60;
constexpr size_t kRowsMax = 64;

std::string heat_color(double value) {
  const double heat = std::clamp(value, 0.0, 1.0);
  const auto channel = [&](double cold, double hot) {
    return static_cast<int>(cold + (hot - cold) * heat);
  };
  return fmt::format("#{:02x}{:02x}{:02x}", channel(246, 179), channel(248, 0), channel(250, 12));
}

}  // namespace

std::string render_svg(const HeatMap& map) {
  const size_t rows = std::min(map.rows.size(), kRowsMax);
  const double row_height = rows > 24 ? 9 : 16;
  const double bottom = kMapTop + row_height * static_cast<double>(rows);
  size_t columns = 1;
  for (const HeatMap::Row& row : map.rows) columns = std::max(columns, row.values.size());
  const double width = (kMapRight - kMapLeft) / static_cast<double>(columns);
  std::string svg = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0} {1:.0f}\" width=\"{0}\" "
      "height=\"{1:.0f}\" font-family=\"system-ui, sans-serif\" font-size=\"11\">\n"
      "<rect width=\"{0}\" height=\"{1:.0f}\" rx=\"8\" fill=\"#ffffff\"/>\n",
      kMapWidth, bottom + 44);
  std::string subtitle = map.subtitle;
  if (rows < map.rows.size()) {
    subtitle += fmt::format("; the first {} of {} rows", rows, map.rows.size());
  }
  svg += svg_text(16, 24, kSvgInk, "font-size=\"16\" font-weight=\"600\"", map.title);
  svg += svg_text(16, 42, kSvgFaint, "font-size=\"12\"", subtitle);
  for (size_t i = 0; i < rows; ++i) {
    const double y = kMapTop + row_height * static_cast<double>(i);
    svg += svg_text(kMapLeft - 8, y + row_height - 2, kSvgFaint,
                    row_height < 12 ? "text-anchor=\"end\" font-size=\"8\"" : "text-anchor=\"end\"",
                    map.rows[i].name);
    for (size_t k = 0; k < map.rows[i].values.size(); ++k) {
      const double value = map.rows[i].values[k];
      if (value < 0.005) continue;
      svg += fmt::format(
          "<rect x=\"{:.2f}\" y=\"{:.1f}\" width=\"{:.2f}\" height=\"{}\" fill=\"{}\"><title>{} "
          "{:.0f} %</title></rect>\n",
          kMapLeft + width * static_cast<double>(k), y, width + 0.2, row_height - 1,
          heat_color(value), xml_text(map.rows[i].name), 100 * value);
    }
  }
  for (const double tick : axis_ticks(0, std::max(map.x_max, 1e-9), 8)) {
    const double x = kMapLeft + (kMapRight - kMapLeft) * tick / std::max(map.x_max, 1e-9);
    svg +=
        svg_text(x, bottom + 16, kSvgFaint, "text-anchor=\"middle\"", fmt::format("{:.6g}", tick));
  }
  svg += svg_text((kMapLeft + kMapRight) / 2, bottom + 34, kSvgInk, "text-anchor=\"middle\"",
                  map.x_label);
  return svg + "</svg>\n";
}

}  // namespace jige::cli
