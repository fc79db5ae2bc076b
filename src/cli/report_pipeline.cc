#include "cli/report_pipeline.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <numeric>

#include "base/bytes.h"
#include "base/counted.h"
#include "cli/line_chart.h"
#include "cli/pipeline_report.h"
#include "plan/pipeline_memory.h"
#include "plan/pipeline_svg.h"

namespace jige::cli {
namespace {

using plan::DeviceTime;
using plan::PipelineTimes;

constexpr std::array kLineColors = {"#1f6feb", "#d1570a", "#2da44e", "#8250df",
                                    "#bf3989", "#9a6700", "#0550ae", "#57606a"};

// The recorded step of median length.
const train::MeasuredStep& median_step(const train::PipelineRecord& record) {
  std::vector<std::pair<int64_t, size_t>> lengths;
  for (size_t i = 0; i < record.steps.size(); ++i) {
    int64_t end_ns = 0;
    for (const train::TaskSpan& span : record.steps[i].spans) {
      end_ns = std::max(end_ns, span.end_ns);
    }
    lengths.emplace_back(end_ns, i);
  }
  std::ranges::sort(lengths);
  return record.steps[lengths[lengths.size() / 2].second];
}

double replay(const plan::PipelineGraph& graph, const PipelineTimes& times) {
  std::vector<double> end(graph.task_count(), 0);
  double step_s = 0;
  for (const int32_t task : graph.topological_order()) {
    const auto i = static_cast<size_t>(task);
    double start = 0;
    for (const int32_t id : graph.predecessors(task)) {
      start = std::max(start, end[static_cast<size_t>(id)]);
    }
    end[i] = start + times.end[i] - times.start[i];
    step_s = std::max(step_s, end[i]);
  }
  return step_s;
}

struct TimePart {
  const char* name;
  const char* color;
  double (*of)(const DeviceTime& device, double step_s);
};

constexpr TimePart kParts[] = {
    {"passes", "#4c8bd6", [](const DeviceTime& d, double) { return d.busy_s; }},
    {"ramp", "#d0d7de", [](const DeviceTime& d, double) { return d.ramp_s; }},
    {"turn", "#afb8c1", [](const DeviceTime& d, double) { return d.turn_s; }},
    {"transfer stall", "#8c6bb1", [](const DeviceTime& d, double) { return d.transfer_s; }},
    {"optimizer tail", "#c94f4f", [](const DeviceTime& d, double) { return d.optimizer_s; }},
    {"starting tasks", "#f2c14e", unexplained_s}};

// Mean share of the devices' time, in percent.
double share(const std::vector<DeviceTime>& split, double step_s, const TimePart& part) {
  double sum = 0;
  for (const DeviceTime& device : split) sum += part.of(device, step_s);
  return step_s > 0 && !split.empty() ? 100 * sum / step_s / static_cast<double>(split.size()) : 0;
}

std::string device_bar(const DeviceTime& device, double step_s, double y) {
  constexpr double kLeft = 150, kWidth = 1030;
  std::string svg;
  double x = kLeft;
  for (const TimePart& part : kParts) {
    const double width = step_s > 0 ? part.of(device, step_s) / step_s * kWidth : 0;
    if (width <= 0) continue;
    svg += fmt::format(
        "<rect x=\"{:.2f}\" y=\"{:.0f}\" width=\"{:.2f}\" height=\"16\" fill=\"{}\">"
        "<title>{}: {:.1f} %, {}</title></rect>\n",
        x, y, width, part.color, part.name, 100 * width / kWidth,
        seconds_text(part.of(device, step_s)));
    if (width >= 40) {
      svg += fmt::format(
          "<text x=\"{:.1f}\" y=\"{:.0f}\" text-anchor=\"middle\" font-size=\"10\" "
          "fill=\"#222222\">{:.1f} %</text>\n",
          x + width / 2, y + 12, 100 * width / kWidth);
    }
    x += width;
  }
  return svg;
}

// The most in use in each of many equal parts of the step, so that no peak is lost in drawing.
std::vector<ChartPoint> envelope(const std::vector<plan::MemoryPoint>& points, double step_s) {
  constexpr int kColumns = 350;
  std::vector<ChartPoint> out;
  size_t next = 0;
  int64_t now = 0;
  for (int column = 0; column < kColumns; ++column) {
    const double until = step_s * (column + 1) / kColumns;
    int64_t most = now;
    for (; next < points.size() && points[next].time_s <= until; ++next) {
      now = points[next].bytes;
      most = std::max(most, now);
    }
    out.push_back({step_s * (column + 0.5) / kColumns, static_cast<double>(most) / (1 << 20)});
  }
  return out;
}

}  // namespace

Result<PipelineView> view_pipeline(const train::PipelineRecord& record) {
  JIGE_TRY(const plan::PipelineGraph graph, plan::PipelineGraph::create(record.schedule));
  PipelineView view{.record = &record};
  view.predicted = plan::time_tasks(record.schedule, graph, record.costs);
  view.predicted_split = plan::split_device_time(record.schedule, graph, view.predicted);
  if (record.steps.empty()) return view;
  const train::MeasuredStep& step = median_step(record);
  view.step = step.step;
  view.measured = train::measured_times(record.schedule, step.spans);
  view.measured_split = plan::split_device_time(record.schedule, graph, view.measured);
  view.replayed_s = replay(graph, view.measured);
  return view;
}

double unexplained_s(const DeviceTime& device, double step_s) {
  const double rest = step_s - device.busy_s - device.idle_s();
  return rest > 1e-9 * step_s ? rest : 0;
}

std::vector<std::pair<std::string, std::string>> pipeline_facts(const PipelineView& view) {
  const plan::PipelineSchedule& schedule = view.record->schedule;
  const train::PipelineMemoryRecord& memory = view.record->memory;
  std::vector<std::pair<std::string, std::string>> facts;
  facts.emplace_back("schedule", fmt::format("{} on {}, {}, {}", schedule.name,
                                             counted(schedule.device_count, "device"),
                                             counted(schedule.micro_batch_count, "micro-batch"),
                                             counted(schedule.block_count, "block")));
  facts.emplace_back(
      "parameters, optimizer, clipping",
      fmt::format("on the {}, {}, {}{}", schedule.host_parameters ? "host" : "devices",
                  plan::optimizer_name(schedule.optimizer), plan::clip_name(schedule.clip),
                  schedule.recompute ? "; activations are recomputed" : ""));
  facts.emplace_back("step, predicted", seconds_text(view.predicted.step_s));
  if (view.has_measured()) {
    facts.emplace_back("step, measured",
                       fmt::format("{} (step {}, {:+.1f} % against the prediction)",
                                   seconds_text(view.measured.step_s), view.step,
                                   100 * (view.measured.step_s / view.predicted.step_s - 1)));
    facts.emplace_back("step, if tasks took their measured times and waited for nothing else",
                       seconds_text(view.replayed_s));
  }
  for (const TimePart& part : kParts) {
    std::string text =
        fmt::format("{:.1f} %", share(view.predicted_split, view.predicted.step_s, part));
    if (view.has_measured()) {
      text += fmt::format(" predicted, {:.1f} % measured",
                          share(view.measured_split, view.measured.step_s, part));
    }
    facts.emplace_back(fmt::format("devices' time, {}", part.name), text);
  }
  for (size_t d = 0; d < memory.device_peak_bytes.size(); ++d) {
    std::string text =
        fmt::format("{} measured, {} planned", format_bytes(memory.device_peak_bytes[d]),
                    format_bytes(memory.device_planned_bytes[d]));
    if (d < memory.device_budget_bytes.size() && memory.device_budget_bytes[d] > 0) {
      text += fmt::format(", budget {}", format_bytes(memory.device_budget_bytes[d]));
    }
    facts.emplace_back(fmt::format("peak of device {}", d), text);
  }
  std::string host = fmt::format("{} measured, {} planned", format_bytes(memory.host_peak_bytes),
                                 format_bytes(memory.host_planned_bytes));
  if (memory.host_budget_bytes > 0) {
    host += fmt::format(", budget {}", format_bytes(memory.host_budget_bytes));
  }
  facts.emplace_back("peak of the host", host);
  return facts;
}

std::string timelines_svg(const PipelineView& view, bool measured) {
  const plan::PipelineSchedule& schedule = view.record->schedule;
  const auto graph = plan::PipelineGraph::create(schedule);
  if (!graph) return "";
  PipelineTimes times = measured ? view.measured : view.predicted;
  const double own_s = times.step_s;
  std::string subtitle = measured ? fmt::format("step {} of the run", view.step)
                                  : "simulated from the costs that the run was planned with";
  // On one scale where that leaves enough to see.
  const double other_s = measured ? view.predicted.step_s : view.measured.step_s;
  const bool one_scale = std::max(own_s, other_s) <= 4 * std::min(own_s, other_s);
  if (view.has_measured() && one_scale) times.step_s = std::max(own_s, other_s);
  if (view.has_measured() && !one_scale) subtitle += "; on a scale of its own";
  return plan::timeline_svg(
      schedule, *graph, times,
      {.title = fmt::format("{}: {}", measured ? "Measured" : "Predicted", seconds_text(own_s)),
       .subtitle = subtitle});
}

std::string split_svg(const PipelineView& view) {
  const size_t bars = view.predicted_split.size() * (view.has_measured() ? 2 : 1);
  const double height = 52 + 22.0 * static_cast<double>(bars) +
                        6.0 * static_cast<double>(view.predicted_split.size());
  std::string svg = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 1200 {0:.0f}\" width=\"1200\" "
      "height=\"{0:.0f}\" font-family=\"sans-serif\" font-size=\"11\">\n"
      "<rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n",
      height);
  double x = 150;
  for (const TimePart& part : kParts) {
    svg += fmt::format(
        "<rect x=\"{0:.0f}\" y=\"14\" width=\"11\" height=\"11\" fill=\"{1}\"/>"
        "<text x=\"{2:.0f}\" y=\"24\">{3}</text>\n",
        x, part.color, x + 16, part.name);
    x += 130;
  }
  double y = 40;
  const auto draw = [&](size_t d, const char* what, const DeviceTime& device, double step_s) {
    svg += fmt::format("<text x=\"16\" y=\"{:.0f}\">device {} {}</text>\n", y + 12, d, what);
    svg += device_bar(device, step_s, y);
    y += 22;
  };
  for (size_t d = 0; d < view.predicted_split.size(); ++d) {
    draw(d, "predicted", view.predicted_split[d], view.predicted.step_s);
    if (view.has_measured()) draw(d, "measured", view.measured_split[d], view.measured.step_s);
    y += 6;
  }
  return svg + "</svg>\n";
}

std::string memory_svg(const PipelineView& view) {
  const train::PipelineRecord& record = *view.record;
  const auto graph = plan::PipelineGraph::create(record.schedule);
  if (!graph) return "";
  const PipelineTimes& times = view.has_measured() ? view.measured : view.predicted;
  const auto buffers = plan::pipeline_buffers(record.schedule, record.costs);
  LineChart chart{.title = "Memory of the devices",
                  .subtitle = view.has_measured()
                                  ? "buffers alive at each moment of the measured step"
                                  : "buffers alive at each moment of the predicted step",
                  .x_label = "seconds",
                  .y_label = "MiB"};
  for (int32_t d = 0; d < record.schedule.device_count; ++d) {
    chart.series.push_back(
        {.name = fmt::format("device {}", d),
         .color = kLineColors[static_cast<size_t>(d) % kLineColors.size()],
         .points = envelope(plan::memory_over_time(*graph, times, buffers, d), times.step_s)});
  }
  std::vector<int64_t> budgets = record.memory.device_budget_bytes;
  std::ranges::sort(budgets);
  const auto same = std::ranges::unique(budgets);
  budgets.erase(same.begin(), same.end());
  for (const int64_t bytes : budgets) {
    if (bytes == 0) continue;
    const double budget = static_cast<double>(bytes) / (1 << 20);
    chart.series.push_back(
        {.name = "budget", .color = "#cf222e", .points = {{0, budget}, {times.step_s, budget}}});
  }
  return render_svg(chart);
}

}  // namespace jige::cli
