#include "cli/cluster_view.h"

#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "cli/table.h"

namespace jige::cli {
namespace {

using cluster::Estimate;
using cluster::ScheduleReport;

const ClusterPoint* base_of(const ClusterPoint& point, std::span<const ClusterPoint> points,
                            const std::string& base) {
  for (const ClusterPoint& other : points) {
    if (other.policy == base && other.load == point.load && &other != &point) return &other;
  }
  return nullptr;
}

double mean_of(const ClusterPoint& point, double ScheduleReport::*figure) {
  return cluster::estimate(values_of(point, figure)).mean;
}

std::string time_cell(const ClusterPoint& point, double ScheduleReport::*figure) {
  const Estimate time = cluster::estimate(values_of(point, figure));
  if (!std::isfinite(time.half_width)) return short_time(time.mean);
  return fmt::format("{} ±{:.0f}%", short_time(time.mean),
                     time.mean > 0 ? 100 * time.half_width / time.mean : 0);
}

std::string change_cell(const ClusterPoint& point, const ClusterPoint* base,
                        double ScheduleReport::*figure) {
  if (!base) return "";
  const Estimate change =
      cluster::estimate_change(values_of(point, figure), values_of(*base, figure));
  if (!std::isfinite(change.half_width)) return fmt::format("{:+.1f}%", 100 * change.mean);
  return fmt::format("{:+.1f} ±{:.1f}%", 100 * change.mean, 100 * change.half_width);
}

Json estimate_json(const Estimate& estimate) {
  Json json{{"mean", estimate.mean}};
  json["ci95"] = std::isfinite(estimate.half_width) ? Json(estimate.half_width) : Json(nullptr);
  return json;
}

}  // namespace

std::vector<double> values_of(const ClusterPoint& point, double ScheduleReport::*figure) {
  std::vector<double> values;
  for (const ScheduleReport& run : point.runs) values.push_back(run.*figure);
  return values;
}

std::string short_time(double seconds) {
  if (seconds < 100) return fmt::format("{:.3g} s", seconds);
  if (seconds < 6000) return fmt::format("{:.3g} min", seconds / 60);
  return seconds < 360'000 ? fmt::format("{:.3g} h", seconds / 3600)
                           : fmt::format("{:.3g} d", seconds / 86'400);
}

std::string cluster_table(std::span<const ClusterPoint> points, const std::string& base) {
  using enum Table::Align;
  Table table({{"load", kRight},
               {"policy"},
               {"mean JCT", kRight},
               {"p50", kRight},
               {"p99", kRight},
               {"service", kRight},
               {"makespan", kRight},
               {"GPUs", kRight},
               {"Jain", kRight},
               {"preempt", kRight},
               {"mean vs " + base, kRight},
               {"p99 vs " + base, kRight}});
  double load = -1;
  for (const ClusterPoint& point : points) {
    if (load >= 0 && point.load != load) table.rule();
    load = point.load;
    const ClusterPoint* other = base_of(point, points, base);
    table.row({fmt::format("{:.2f}", point.load), point.policy,
               time_cell(point, &ScheduleReport::jct_mean_s),
               time_cell(point, &ScheduleReport::jct_p50_s),
               time_cell(point, &ScheduleReport::jct_p99_s),
               short_time(mean_of(point, &ScheduleReport::service_mean_s)),
               short_time(mean_of(point, &ScheduleReport::makespan_s)),
               fmt::format("{:.0f}%", 100 * mean_of(point, &ScheduleReport::utilisation)),
               fmt::format("{:.2f}", mean_of(point, &ScheduleReport::jain)),
               fmt::format("{:.2f}", mean_of(point, &ScheduleReport::preemptions) +
                                         mean_of(point, &ScheduleReport::migrations)),
               change_cell(point, other, &ScheduleReport::jct_mean_s),
               change_cell(point, other, &ScheduleReport::jct_p99_s)});
  }
  return table.render();
}

Json schedule_json(const ScheduleReport& report) {
  return Json{{"jobs", report.jobs},
              {"finished", report.finished},
              {"refused", report.refused},
              {"jct_s", Json{{"mean", report.jct_mean_s},
                             {"p50", report.jct_p50_s},
                             {"p99", report.jct_p99_s},
                             {"max", report.jct_max_s}}},
              {"service_mean_s", report.service_mean_s},
              {"wait_mean_s", report.wait_mean_s},
              {"alone_mean_s", report.alone_mean_s},
              {"makespan_s", report.makespan_s},
              {"utilisation", report.utilisation},
              {"useful", report.useful},
              {"jain", report.jain},
              {"preemptions_per_job", report.preemptions},
              {"migrations_per_job", report.migrations}};
}

Json cluster_json(const ClusterPoint& point, std::span<const ClusterPoint> points,
                  const std::string& base) {
  const auto of = [&](double ScheduleReport::*figure) {
    return estimate_json(cluster::estimate(values_of(point, figure)));
  };
  Json json{{"simulated", true},
            {"policy", point.policy},
            {"load", point.load},
            {"jct_mean_s", of(&ScheduleReport::jct_mean_s)},
            {"jct_p50_s", of(&ScheduleReport::jct_p50_s)},
            {"jct_p99_s", of(&ScheduleReport::jct_p99_s)},
            {"service_mean_s", of(&ScheduleReport::service_mean_s)},
            {"makespan_s", of(&ScheduleReport::makespan_s)},
            {"utilisation", of(&ScheduleReport::utilisation)},
            {"useful", of(&ScheduleReport::useful)},
            {"jain", of(&ScheduleReport::jain)},
            {"preemptions_per_job", of(&ScheduleReport::preemptions)},
            {"migrations_per_job", of(&ScheduleReport::migrations)}};
  if (const ClusterPoint* other = base_of(point, points, base)) {
    const auto change = [&](double ScheduleReport::*figure) {
      return estimate_json(
          cluster::estimate_change(values_of(point, figure), values_of(*other, figure)));
    };
    json["against"] = Json{{"policy", base},
                           {"jct_mean_change", change(&ScheduleReport::jct_mean_s)},
                           {"jct_p99_change", change(&ScheduleReport::jct_p99_s)}};
  }
  json["runs"] = Json::array();
  for (const ScheduleReport& run : point.runs) json["runs"].push_back(schedule_json(run));
  return json;
}

}  // namespace jige::cli
