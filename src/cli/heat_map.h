// Heat maps as SVG: a row a thing, a column a span of time, white to red from 0 to 1.
//
// Threads: values.
#pragma once

#include <string>
#include <vector>

namespace jige::cli {

struct HeatMap {
  std::string title;
  std::string subtitle;
  std::string x_label;
  double x_max = 1;  // at the right edge; the left one is 0
  struct Row {
    std::string name;
    std::vector<double> values;  // in [0, 1]; those missing at the end are 0
  };
  std::vector<Row> rows = {};
};

// A whole SVG document, 800 pixels wide; rows beyond 64 are left out, and the subtitle says so.
std::string render_svg(const HeatMap& map);

}  // namespace jige::cli
