#include "plan/pipeline_svg.h"

#include <algorithm>
#include <tuple>
#include <vector>

namespace jige::plan {
namespace {

constexpr double kLabelWidth = 130;
constexpr double kMargin = 16;
constexpr double kRowHeight = 20;
constexpr double kRowGap = 3;
constexpr double kDeviceGap = 10;
constexpr double kHeadHeight = 84;
constexpr double kAxisHeight = 26;
constexpr double kTextBarWidth = 13;  // narrower bars carry no number

std::string_view color_of(TaskKind kind) {
  static constexpr std::string_view kColors[kTaskKindCount] = {
      "#8c6bb1", "#8c6bb1", "#4c8bd6", "#9cc3ee", "#e9853c", "#f2c14e", "#79a86b", "#79a86b",
      "#79a86b", "#79a86b", "#79a86b", "#79a86b", "#b0739b", "#c94f4f", "#888888"};
  return kColors[static_cast<size_t>(kind)];
}

struct LegendEntry {
  TaskKind kind;
  std::string_view text;
};
constexpr LegendEntry kLegend[] = {{TaskKind::kForward, "forward"},
                                   {TaskKind::kRecompute, "recompute"},
                                   {TaskKind::kBackwardInput, "input gradient"},
                                   {TaskKind::kBackwardWeight, "weight gradient"},
                                   {TaskKind::kFetch, "fetch"},
                                   {TaskKind::kSendActivation, "message"},
                                   {TaskKind::kGradientOffload, "gradient to host"},
                                   {TaskKind::kOptimizerStep, "optimizer"}};

std::string xml(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '&') {
      out += "&amp;";
    } else if (c == '<') {
      out += "&lt;";
    } else if (c == '>') {
      out += "&gt;";
    } else if (c == '"') {
      out += "&quot;";
    } else if (static_cast<unsigned char>(c) >= 0x20) {
      out += c;
    }
  }
  return out;
}

class Timeline {
 public:
  Timeline(const PipelineSchedule& schedule, const PipelineGraph& graph, const PipelineTimes& times,
           const TimelineOptions& options)
      : schedule_(schedule),
        graph_(graph),
        times_(times),
        options_(options),
        width_(std::max(options.width, 400.0)) {
    choose_rows();
  }

  std::string draw() {
    std::string body;
    double y = kHeadHeight;
    int32_t device = -2;
    for (const PipelineQueue* row : rows_) {
      if (device != -2 && row->device != device) y += kDeviceGap;
      device = row->device;
      body += draw_row(*row, y);
      y += kRowHeight + kRowGap;
    }
    body += draw_axis(y);
    const double height = y + kAxisHeight + kMargin;
    return fmt::format(
               "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0:.0f}\" height=\"{1:.0f}\" "
               "viewBox=\"0 0 {0:.0f} {1:.0f}\" font-family=\"sans-serif\" font-size=\"11\">\n"
               "<rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n",
               width_, height) +
           draw_head() + body + "</svg>\n";
  }

 private:
  double seconds(int32_t task) const {
    const auto i = static_cast<size_t>(task);
    return times_.end[i] - times_.start[i];
  }
  double x_of(double time) const {
    const double room = width_ - kLabelWidth - 2 * kMargin;
    return kMargin + kLabelWidth + (times_.step_s > 0 ? time / times_.step_s * room : 0);
  }

  void choose_rows() {
    for (const PipelineQueue& queue : graph_.queues()) {
      const bool takes_time =
          std::ranges::any_of(queue.tasks, [&](int32_t task) { return seconds(task) > 0; });
      if (takes_time) rows_.push_back(&queue);
    }
    std::ranges::sort(rows_, [](const PipelineQueue* a, const PipelineQueue* b) {
      return std::tuple(a->device, a->kind, a->peer) < std::tuple(b->device, b->kind, b->peer);
    });
  }

  std::string draw_head() const {
    std::string text = fmt::format(
        "<text x=\"{0}\" y=\"24\" font-size=\"16\" font-weight=\"bold\">{1}</text>\n"
        "<text x=\"{0}\" y=\"42\" fill=\"#555555\">{2}</text>\n",
        kMargin, xml(options_.title.empty() ? schedule_.name : options_.title),
        xml(options_.subtitle));
    double x = kMargin;
    for (const LegendEntry& entry : kLegend) {
      text += fmt::format(
          "<rect x=\"{:.0f}\" y=\"56\" width=\"11\" height=\"11\" fill=\"{}\"/>"
          "<text x=\"{:.0f}\" y=\"66\">{}</text>\n",
          x, color_of(entry.kind), x + 15, entry.text);
      x += 27 + 6.2 * static_cast<double>(entry.text.size());
    }
    return text;
  }

  std::string draw_row(const PipelineQueue& row, double y) const {
    const std::string place = row.device < 0 ? "" : fmt::format("device {} ", row.device);
    std::string text = fmt::format(
        "<text x=\"{}\" y=\"{:.1f}\">{}{}</text>\n"
        "<rect x=\"{:.2f}\" y=\"{:.1f}\" width=\"{:.2f}\" height=\"{}\" fill=\"#f1f1f1\"/>\n",
        kMargin, y + 14, place, queue_name(row.kind), x_of(0), y, x_of(times_.step_s) - x_of(0),
        kRowHeight);
    for (const int32_t task : row.tasks) {
      if (seconds(task) > 0) text += draw_bar(task, y);
    }
    return text;
  }

  std::string draw_bar(int32_t task, double y) const {
    const PipelineTask& what = schedule_.tasks[static_cast<size_t>(task)];
    const double left = x_of(times_.start[static_cast<size_t>(task)]);
    const double width = x_of(times_.end[static_cast<size_t>(task)]) - left;
    std::string text = fmt::format(
        "<rect x=\"{:.2f}\" y=\"{:.1f}\" width=\"{:.2f}\" height=\"{}\" fill=\"{}\" "
        "stroke=\"#ffffff\" stroke-width=\"0.4\"><title>{}, {:.6g} to {:.6g}</title></rect>\n",
        left, y, width, kRowHeight, color_of(what.kind), xml(describe_task(schedule_, task)),
        times_.start[static_cast<size_t>(task)], times_.end[static_cast<size_t>(task)]);
    if (what.micro_batch >= 0 && width >= kTextBarWidth) {
      text += fmt::format(
          "<text x=\"{:.2f}\" y=\"{:.1f}\" text-anchor=\"middle\" font-size=\"10\" "
          "fill=\"#222222\">{}</text>\n",
          left + width / 2, y + 14, what.micro_batch);
    }
    return text;
  }

  std::string draw_axis(double y) const {
    std::string text;
    constexpr int kTicks = 4;
    for (int i = 0; i <= kTicks; ++i) {
      const double time = times_.step_s * i / kTicks;
      text += fmt::format(
          "<line x1=\"{0:.2f}\" y1=\"{1:.1f}\" x2=\"{0:.2f}\" y2=\"{2:.1f}\" stroke=\"#999999\"/>"
          "<text x=\"{0:.2f}\" y=\"{3:.1f}\" text-anchor=\"{4}\" fill=\"#555555\">{5:.4g} "
          "s</text>\n",
          x_of(time), y, y + 5, y + 18, i == kTicks ? "end" : "middle", time);
    }
    return text;
  }

  const PipelineSchedule& schedule_;
  const PipelineGraph& graph_;
  const PipelineTimes& times_;
  const TimelineOptions& options_;
  double width_;
  std::vector<const PipelineQueue*> rows_;
};

}  // namespace

std::string timeline_svg(const PipelineSchedule& schedule, const PipelineGraph& graph,
                         const PipelineTimes& times, const TimelineOptions& options) {
  return Timeline(schedule, graph, times, options).draw();
}

}  // namespace jige::plan
