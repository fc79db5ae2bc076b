#include "cli/load_view.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "cli/table.h"

namespace jige::cli {
namespace {

constexpr const char* kSeriesColors[] = {"#1f6feb", "#d1570a", "#2da44e",
                                         "#8250df", "#bf3989", "#6e7781"};

// Three digits are what a measurement of this kind carries.
std::string rounded(double value) {
  return value >= 1000 ? fmt::format("{:.0f}", value) : fmt::format("{:.3g}", value);
}

std::string ms_text(double seconds) { return rounded(seconds * 1000); }

std::string range_in_ms(std::span<const double> seconds) {
  if (seconds.empty()) return "–";
  const auto [low, high] = std::ranges::minmax(seconds);
  return fmt::format("{} to {}", ms_text(low), ms_text(high));
}

Json summary_json(const sim::Summary& summary) {
  return {{"count", summary.count},
          {"mean", summary.mean},
          {"p50", summary.p50},
          {"p90", summary.p90},
          {"p99", summary.p99}};
}

int64_t failed(const sim::LoadReport& report) { return report.requests - report.succeeded; }

void summary_row(Table& table, const std::string& name, const sim::Summary& summary) {
  if (summary.count == 0) return table.row({name, "–", "–", "–", "–"});
  table.row({name, ms_text(summary.mean), ms_text(summary.p50), ms_text(summary.p90),
             ms_text(summary.p99)});
}

}  // namespace

std::string load_text(const LoadPoint& point) {
  if (point.users > 0) return fmt::format("{} users", point.users);
  return point.rate > 0 ? fmt::format("{:.4g} /s", point.rate) : "all at once";
}

std::string points_table(std::span<const LoadPoint> points) {
  using enum Table::Align;
  const bool goodput = std::ranges::any_of(
      points, [](const LoadPoint& point) { return point.report.goodput_per_s.has_value(); });
  const bool rounds = std::ranges::any_of(
      points, [](const LoadPoint& point) { return point.rounds_p50_s.size() > 1; });
  std::vector<Table::Column> columns = {
      {"subject"},           {"load", kRight},   {"requests/s", kRight}, {"tokens/s", kRight},
      {"TTFT p50", kRight},  {"p99 ms", kRight}, {"TPOT p50", kRight},   {"p99 ms", kRight},
      {"norm. p50", kRight}, {"p99 ms", kRight}, {"failed", kRight}};
  if (goodput) columns.push_back({"good/s", kRight});
  if (rounds) columns.push_back({"norm. p50 of rounds", kRight});
  Table table(std::move(columns));
  for (const LoadPoint& point : points) {
    const sim::LoadReport& report = point.report;
    std::vector<std::string> cells = {point.subject,
                                      load_text(point),
                                      rounded(report.requests_per_s),
                                      rounded(report.output_tokens_per_s),
                                      ms_text(report.ttft_s.p50),
                                      ms_text(report.ttft_s.p99),
                                      ms_text(report.tpot_s.p50),
                                      ms_text(report.tpot_s.p99),
                                      ms_text(report.normalised_s.p50),
                                      ms_text(report.normalised_s.p99),
                                      std::to_string(failed(report))};
    if (goodput) cells.push_back(rounded(report.goodput_per_s.value_or(0)));
    if (rounds) cells.push_back(range_in_ms(point.rounds_p50_s));
    table.row(std::move(cells));
  }
  return table.render();
}

std::string report_text(const LoadPoint& point) {
  using enum Table::Align;
  const sim::LoadReport& report = point.report;
  std::string text =
      fmt::format("  {}, {}: {} of {} requests in {:.3g} s\n", point.subject, load_text(point),
                  report.succeeded, report.requests, report.seconds);
  text += fmt::format("  {} requests/s, {} tokens/s of answers, {} with prompts\n",
                      rounded(report.requests_per_s), rounded(report.output_tokens_per_s),
                      rounded(report.tokens_per_s));
  if (report.goodput_per_s) {
    text +=
        fmt::format("  goodput {} requests/s within the bounds\n", rounded(*report.goodput_per_s));
  }
  Table table(
      {{"milliseconds"}, {"mean", kRight}, {"p50", kRight}, {"p90", kRight}, {"p99", kRight}});
  summary_row(table, "first token (TTFT)", report.ttft_s);
  summary_row(table, "per further token (TPOT)", report.tpot_s);
  summary_row(table, "between tokens (ITL)", report.itl_s);
  summary_row(table, "whole answer (E2E)", report.e2e_s);
  summary_row(table, "E2E / tokens (normalised)", report.normalised_s);
  text += table.render();
  for (const auto& [kind, count] : report.failures) {
    text += fmt::format("  failed: {} × {}\n", count, kind);
  }
  return text;
}

Json point_json(const LoadPoint& point) {
  const sim::LoadReport& report = point.report;
  Json json{{"subject", point.subject}};
  if (point.users > 0) {
    json["users"] = point.users;
  } else {
    json["rate_per_s"] = point.rate;
  }
  json["requests"] = report.requests;
  json["succeeded"] = report.succeeded;
  json["failures"] = Json::object();
  for (const auto& [kind, count] : report.failures) json["failures"][kind] = count;
  json["seconds"] = report.seconds;
  json["requests_per_s"] = report.requests_per_s;
  json["prompt_tokens"] = report.prompt_tokens;
  json["output_tokens"] = report.output_tokens;
  json["output_tokens_per_s"] = report.output_tokens_per_s;
  json["tokens_per_s"] = report.tokens_per_s;
  json["ttft_s"] = summary_json(report.ttft_s);
  json["tpot_s"] = summary_json(report.tpot_s);
  json["itl_s"] = summary_json(report.itl_s);
  json["e2e_s"] = summary_json(report.e2e_s);
  json["normalised_s"] = summary_json(report.normalised_s);
  if (report.goodput_per_s) json["goodput_per_s"] = *report.goodput_per_s;
  if (!point.rounds_p50_s.empty()) json["rounds_normalised_p50_s"] = point.rounds_p50_s;
  return json;
}

LineChart load_chart(std::span<const LoadPoint> points, std::string title, std::string machine) {
  LineChart chart{.title = std::move(title),
                  .subtitle = std::move(machine),
                  .x_label = "throughput (requests/s)",
                  .y_label = "median latency per token (ms)",
                  .y_log = true};
  for (const LoadPoint& point : points) {
    if (point.report.normalised_s.count == 0) continue;
    auto series = std::ranges::find(chart.series, point.subject, &ChartSeries::name);
    if (series == chart.series.end()) {
      chart.series.push_back(
          {.name = point.subject,
           .color = kSeriesColors[chart.series.size() % std::size(kSeriesColors)],
           .dots = true});
      series = chart.series.end() - 1;
    }
    series->points.push_back({point.report.requests_per_s, point.report.normalised_s.p50 * 1000});
  }
  return chart;
}

}  // namespace jige::cli
