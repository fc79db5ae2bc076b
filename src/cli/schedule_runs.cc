#include "cli/schedule_runs.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/bytes.h"
#include "cli/interrupt.h"
#include "cli/pipeline_report.h"
#include "cli/table.h"

namespace jige::cli {
namespace {

using enum Table::Align;

bool same_bits(const std::vector<double>& a, const std::vector<double>& b) {
  return std::ranges::equal(
      a, b, {}, [](double x) { return std::bit_cast<uint64_t>(x); },
      [](double x) { return std::bit_cast<uint64_t>(x); });
}

std::string optimizer_of(const ScheduleRuns& runs) {
  return std::string(plan::optimizer_name(runs.row.schedule.optimizer));
}

std::string label_of(const ScheduleRuns& runs) {
  return fmt::format("{} {}", runs.row.name, optimizer_of(runs));
}

// One round of one row.
Status run_round(ScheduleRuns& runs, const train::RigOptions& options, int64_t steps) {
  JIGE_TRY(const auto rig, train::ScheduleRig::create(runs.row.schedule, options));
  JIGE_TRY([[maybe_unused]] const double warm, rig->step());
  for (int64_t i = 0; i < steps; ++i) {
    JIGE_TRY(const double seconds, rig->step());
    runs.seconds.push_back(seconds);
  }
  const bool exact = !options.timed && options.compute == DType::kF32;
  if (exact && !runs.losses.empty() && !same_bits(runs.losses, rig->losses())) {
    return fail(Code::kInternal, "{}: the losses of two rounds differ", label_of(runs));
  }
  if (!options.timed) runs.losses = rig->losses();
  runs.predicted_s = rig->predicted_s();
  runs.step_tokens = rig->step_tokens();
  runs.planned_bytes = rig->planned_bytes();
  const std::vector<int64_t> peaks = rig->device_peak_bytes();
  runs.device_peak_bytes.resize(peaks.size());
  for (size_t d = 0; d < peaks.size(); ++d) {
    runs.device_peak_bytes[d] = std::max(runs.device_peak_bytes[d], peaks[d]);
  }
  runs.host_peak_bytes = std::max(runs.host_peak_bytes, rig->host_peak_bytes());
  return {};
}

Status check_losses(const std::vector<ScheduleRuns>& all) {
  const ScheduleRuns* first = nullptr;
  for (const ScheduleRuns& runs : all) {
    if (runs.losses.empty()) continue;
    if (!first) first = &runs;
    if (same_bits(first->losses, runs.losses)) continue;
    return fail(Code::kInternal, "{} and {}: the same steps have other losses", label_of(*first),
                label_of(runs));
  }
  return {};
}

std::string spread_text(const ScheduleRuns& runs) {
  return fmt::format("{} to {}", seconds_text(runs.fastest_s()), seconds_text(runs.slowest_s()));
}

std::string refusals(const std::vector<ScheduleRuns>& all) {
  std::string text;
  for (const ScheduleRuns& runs : all) {
    if (!runs.refusal.empty()) text += fmt::format("{}: {}\n", label_of(runs), runs.refusal);
  }
  return text.empty() ? "" : "\nWhat does not run:\n" + text;
}

}  // namespace

double ScheduleRuns::median_s() const {
  std::vector<double> sorted = seconds;
  std::ranges::sort(sorted);
  const size_t half = sorted.size() / 2;
  if (sorted.empty()) return 0;
  return sorted.size() % 2 == 1 ? sorted[half] : (sorted[half - 1] + sorted[half]) / 2;
}

double ScheduleRuns::fastest_s() const {
  return seconds.empty() ? 0 : *std::ranges::min_element(seconds);
}

double ScheduleRuns::slowest_s() const {
  return seconds.empty() ? 0 : *std::ranges::max_element(seconds);
}

int64_t ScheduleRuns::fullest_bytes() const {
  return device_peak_bytes.empty() ? 0 : *std::ranges::max_element(device_peak_bytes);
}

Result<std::vector<ScheduleRuns>> run_schedules(
    std::vector<ScheduleRow> rows, const train::RigOptions& options, const RunCounts& counts,
    const std::function<void(const std::string&)>& progress) {
  std::vector<ScheduleRuns> all;
  for (ScheduleRow& row : rows) all.push_back({.row = std::move(row)});
  for (int64_t round = 0; round < counts.rounds; ++round) {
    for (ScheduleRuns& runs : all) {
      if (interrupted()) return fail(Code::kCancelled, "by a signal");
      if (!runs.refusal.empty()) continue;
      progress(fmt::format("round {} of {}, {}", round + 1, counts.rounds, label_of(runs)));
      if (Status status = run_round(runs, options, counts.steps); !status) {
        if (status.error().code != Code::kExhausted) return tl::unexpected(status.error());
        runs.refusal = status.error().message;
      }
    }
  }
  if (options.compute == DType::kF32) JIGE_DO(check_losses(all));
  return all;
}

Json runs_json(const ScheduleRuns& runs, bool timed) {
  const plan::PipelineSchedule& schedule = runs.row.schedule;
  Json json{{"name", runs.row.name},
            {"schedule", schedule.name},
            {"optimizer", plan::optimizer_name(schedule.optimizer)},
            {"parameters", schedule.host_parameters ? "host" : "device"},
            {"devices", schedule.device_count},
            {"timed_devices", timed}};
  if (!runs.row.how.empty()) json["how"] = runs.row.how;
  if (!runs.refusal.empty()) {
    json["refusal"] = runs.refusal;
    return json;
  }
  json["runs"] = runs.seconds.size();
  json["step_s"] = runs.median_s();
  json["step_s_min"] = runs.fastest_s();
  json["step_s_max"] = runs.slowest_s();
  json["device_peak_bytes"] = runs.device_peak_bytes;
  json["device_planned_bytes"] = runs.planned_bytes;
  json["host_peak_bytes"] = runs.host_peak_bytes;
  if (timed) {
    json["simulated_step_s"] = runs.predicted_s;
    json["error"] = runs.error();
  } else {
    json["tokens_per_s"] = static_cast<double>(runs.step_tokens) / runs.median_s();
    json["losses"] = runs.losses;
  }
  return json;
}

std::string real_runs_table(const std::vector<ScheduleRuns>& all) {
  Table table({{"schedule"},
               {"optimizer"},
               {"parameters"},
               {"step", kRight},
               {"of all steps", kRight},
               {"tokens/s", kRight},
               {"device peak", kRight},
               {"planned", kRight},
               {"host peak", kRight}});
  for (const ScheduleRuns& runs : all) {
    const std::string parameters = runs.row.schedule.host_parameters ? "host" : "device";
    if (!runs.refusal.empty()) {
      table.row({runs.row.name, optimizer_of(runs), parameters, "-", "-", "-", "-", "-", "-"});
      continue;
    }
    table.row({runs.row.name, optimizer_of(runs), parameters, seconds_text(runs.median_s()),
               spread_text(runs),
               fmt::format("{:.0f}", static_cast<double>(runs.step_tokens) / runs.median_s()),
               format_bytes(runs.fullest_bytes()), format_bytes(runs.planned_bytes),
               format_bytes(runs.host_peak_bytes)});
  }
  return table.render() + refusals(all);
}

std::string timed_runs_table(const std::vector<ScheduleRuns>& all) {
  double shortest = 0;
  for (const ScheduleRuns& runs : all) {
    if (runs.seconds.empty()) continue;
    shortest = shortest > 0 ? std::min(shortest, runs.median_s()) : runs.median_s();
  }
  Table table({{"schedule"},
               {"optimizer"},
               {"simulated", kRight},
               {"measured", kRight},
               {"of all steps", kRight},
               {"error", kRight},
               {"of shortest", kRight},
               {"device peak", kRight}});
  for (const ScheduleRuns& runs : all) {
    if (!runs.refusal.empty()) {
      table.row({runs.row.name, optimizer_of(runs), "-", "-", "-", "-", "-", "-"});
      continue;
    }
    table.row({runs.row.name, optimizer_of(runs), seconds_text(runs.predicted_s),
               seconds_text(runs.median_s()), spread_text(runs),
               fmt::format("{:+.1f} %", 100 * runs.error()),
               fmt::format("{:.2f}", runs.median_s() / shortest),
               format_bytes(runs.fullest_bytes())});
  }
  return table.render() + refusals(all);
}

}  // namespace jige::cli
