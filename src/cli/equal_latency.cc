#include "cli/equal_latency.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>
#include <utility>

#include "cli/table.h"

namespace jige::cli {
namespace {

constexpr double kBoundFactors[] = {1.5, 2, 4};

struct Statistic {
  std::string_view name;
  double sim::Summary::*field;
};
// The Orca paper shows medians; means and tails show what long batches do to short answers.
constexpr Statistic kStatistics[] = {
    {"p50", &sim::Summary::p50}, {"mean", &sim::Summary::mean}, {"p99", &sim::Summary::p99}};

struct CurvePoint {
  double requests_per_s = 0;
  double latency_s = 0;
};
using Curve = std::vector<CurvePoint>;

// A subject's loads by throughput.
Curve curve_of(std::span<const LoadPoint> points, const std::string& subject,
               const Statistic& statistic) {
  Curve curve;
  for (const LoadPoint& point : points) {
    if (point.subject != subject || point.report.normalised_s.count == 0) continue;
    curve.push_back({point.report.requests_per_s, point.report.normalised_s.*statistic.field});
  }
  std::ranges::sort(curve, {}, &CurvePoint::requests_per_s);
  return curve;
}

CarriedLoad carried_at(const Curve& curve, double bound_s) {
  const auto last = std::find_if(curve.rbegin(), curve.rend(), [bound_s](const CurvePoint& point) {
    return point.latency_s <= bound_s;
  });
  if (last == curve.rend()) return {curve.front().requests_per_s, Known::kLess};
  if (last == curve.rbegin()) return {last->requests_per_s, Known::kMore};
  const CurvePoint &within = *last, &beyond = *(last - 1);
  const double part = (bound_s - within.latency_s) / (beyond.latency_s - within.latency_s);
  return {within.requests_per_s + part * (beyond.requests_per_s - within.requests_per_s)};
}

std::vector<Curve> curves_of(std::span<const LoadPoint> points,
                             const std::vector<std::string>& subjects, const Statistic& statistic) {
  std::vector<Curve> curves;
  for (const std::string& subject : subjects) {
    curves.push_back(curve_of(points, subject, statistic));
  }
  return curves;
}

// " (2.7 to 3.4)", or nothing where there were no two rounds.
std::string range_of(std::span<const double> multiples) {
  if (multiples.size() < 2) return "";
  const auto [low, high] = std::ranges::minmax(multiples);
  return fmt::format(" ({:.1f} to {:.1f})", low, high);
}

void add_round(LoadsAtLatency& row, const std::vector<Curve>& curves) {
  if (std::ranges::any_of(curves, &Curve::empty)) return;
  const CarriedLoad first = carried_at(curves[0], row.bound_s);
  if (first.known != Known::kExactly) return;
  for (size_t i = 1; i < curves.size(); ++i) {
    const CarriedLoad carried = carried_at(curves[i], row.bound_s);
    if (carried.known != Known::kExactly) continue;
    row.round_multiples[i].push_back(carried.requests_per_s / first.requests_per_s);
  }
}

std::string_view sign_of(Known known) {
  return known == Known::kLess ? "< " : known == Known::kMore ? "> " : "";
}

// ", > 3.1 x" of what `first` carries; nothing where the ends of curves say nothing of it.
std::string multiple_of(const CarriedLoad& carried, const CarriedLoad& first) {
  using enum Known;
  if (carried.known == first.known && carried.known != kExactly) return "";
  Known known = kExactly;
  if (carried.known == kMore || first.known == kLess) known = kMore;
  if (carried.known == kLess || first.known == kMore) known = kLess;
  return fmt::format(", {}{:.1f} x", sign_of(known), carried.requests_per_s / first.requests_per_s);
}

}  // namespace

std::optional<EqualLatency> equal_latency(std::span<const LoadPoint> points,
                                          std::span<const std::vector<LoadPoint>> rounds) {
  EqualLatency loads;
  for (const LoadPoint& point : points) {
    if (point.users > 0) return std::nullopt;
    if (point.report.normalised_s.count == 0) continue;
    if (std::ranges::find(loads.subjects, point.subject) == loads.subjects.end()) {
      loads.subjects.push_back(point.subject);
    }
  }
  if (loads.subjects.size() < 2) return std::nullopt;
  for (const Statistic& statistic : kStatistics) {
    const std::vector<Curve> curves = curves_of(points, loads.subjects, statistic);
    double lowest_s = std::numeric_limits<double>::infinity();
    for (const Curve& curve : curves) {
      for (const CurvePoint& point : curve) lowest_s = std::min(lowest_s, point.latency_s);
    }
    for (const double factor : kBoundFactors) {
      LoadsAtLatency row{.statistic = statistic.name, .bound_s = factor * lowest_s};
      for (const Curve& curve : curves) row.carried.push_back(carried_at(curve, row.bound_s));
      row.round_multiples.resize(curves.size());
      for (const std::vector<LoadPoint>& round : rounds) {
        add_round(row, curves_of(round, loads.subjects, statistic));
      }
      loads.rows.push_back(std::move(row));
    }
  }
  return loads;
}

std::string equal_latency_table(const EqualLatency& loads) {
  using enum Table::Align;
  std::vector<Table::Column> columns = {{"at a normalised latency of"}};
  for (const std::string& subject : loads.subjects) columns.push_back({subject, kRight});
  Table table(std::move(columns));
  for (const LoadsAtLatency& row : loads.rows) {
    std::vector<std::string> cells = {
        fmt::format("{:.3g} ms ({})", row.bound_s * 1000, row.statistic)};
    for (size_t i = 0; i < row.carried.size(); ++i) {
      const CarriedLoad& carried = row.carried[i];
      std::string cell = fmt::format("{}{:.3g} /s", sign_of(carried.known), carried.requests_per_s);
      if (i > 0) cell += multiple_of(carried, row.carried[0]) + range_of(row.round_multiples[i]);
      cells.push_back(std::move(cell));
    }
    table.row(std::move(cells));
  }
  return table.render();
}

Json equal_latency_json(const EqualLatency& loads) {
  Json rows = Json::array();
  for (const LoadsAtLatency& row : loads.rows) {
    Json subjects = Json::object();
    for (size_t i = 0; i < loads.subjects.size(); ++i) {
      subjects[loads.subjects[i]] = {{"requests_per_s", row.carried[i].requests_per_s},
                                     {"less", row.carried[i].known == Known::kLess},
                                     {"more", row.carried[i].known == Known::kMore},
                                     {"round_multiples", row.round_multiples[i]}};
    }
    rows.push_back(Json{{"statistic", row.statistic},
                        {"normalised_s", row.bound_s},
                        {"carried", std::move(subjects)}});
  }
  return Json{{"equal_latency", std::move(rows)}};
}

}  // namespace jige::cli
