// How load tests are shown: tables, JSON, and Orca's figure.
//
// Threads: values.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/json.h"
#include "cli/line_chart.h"
#include "sim/load_report.h"

namespace jige::cli {

// One load against one subject.
struct LoadPoint {
  std::string subject;  // a policy's name, or an address
  double rate = 0;      // requests a second that were sent; 0: all at once
  int64_t users = 0;    // > 0: closed loop, and the rate means nothing
  sim::LoadReport report;
  std::vector<double> rounds_p50_s;  // where it ran several times: its normalised latency in each
};

// "8 users", "2.5 /s", "all at once".
std::string load_text(const LoadPoint& point);
// A row a point.
std::string points_table(std::span<const LoadPoint> points);
// Everything about one point.
std::string report_text(const LoadPoint& point);
Json point_json(const LoadPoint& point);
// Median normalised latency against throughput, a curve a subject; `machine` is its caption.
LineChart load_chart(std::span<const LoadPoint> points, std::string title, std::string machine);

}  // namespace jige::cli
