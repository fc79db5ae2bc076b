// One picture of a server at work, from what it answers to GET /top and GET /metrics.
//
// Threads: pure functions.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "base/json.h"

namespace jige::cli {

// The sum of a metric's samples over all labels in Prometheus' text format; nothing where there is
// no such metric.
std::optional<double> metric_sum(std::string_view text, std::string_view name);

// What a frame is drawn from.
struct TopSample {
  Json top;             // of /top
  std::string metrics;  // of /metrics; may be empty
  double at_s = 0;      // when it was taken
};

struct TopView {
  std::string address;
  int rows_max = 40;     // of the terminal
  int columns_max = 80;  // longer lines are cut
};

// The share of prompt tokens found in the prefix cache since the start; nothing before the first.
std::optional<double> prefix_hit_share(const TopSample& sample);
// Tokens of answers a second between two samples; nothing without an earlier one of the same run.
std::optional<double> answer_tokens_per_s(const TopSample& now, const TopSample* before);

// Lines with a line feed each. What the server does not tell is shown as "–".
std::string render_top(const TopSample& now, const TopSample* before, const TopView& view);

}  // namespace jige::cli
