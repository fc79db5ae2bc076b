// jige plot-loss: the loss curve of a run as an SVG picture.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/file.h"
#include "base/log.h"
#include "cli/command.h"
#include "cli/commands.h"
#include "cli/flags.h"
#include "cli/input.h"
#include "cli/line_chart.h"
#include "cli/output.h"

namespace jige::cli {
namespace {

struct LossLog {
  std::vector<ChartPoint> training;
  std::vector<ChartPoint> held_out;
  double tokens = 0;
  double seconds = 0;
};

double number_or(const Json& record, const char* field, double fallback) {
  const auto found = record.find(field);
  return found != record.end() && found->is_number() ? found->get<double>() : fallback;
}

Result<LossLog> read_log(const std::string& path) {
  LossLog log;
  // The last line may be half-written while the run goes on.
  std::string pending;
  int64_t pending_number = 0;
  const auto take = [&](const std::string& line, int64_t number) -> Status {
    if (line.empty()) return {};
    JIGE_TRY(const Json record, parse_json(line, fmt::format("{}:{}", path, number)));
    const auto kind = get_string_or(record, "kind", "", path);
    const ChartPoint point{number_or(record, "step", NAN), number_or(record, "loss", NAN)};
    if (kind && *kind == "step") log.training.push_back(point);
    if (kind && *kind == "eval") log.held_out.push_back(point);
    if (kind && *kind == "step") log.tokens += number_or(record, "tokens", 0);
    log.seconds = number_or(record, "run_seconds", log.seconds);
    return {};
  };
  const auto take_the_one_before = [&](std::string_view line, int64_t number) -> Status {
    JIGE_DO(take(pending, pending_number));
    pending = line;
    pending_number = number;
    return {};
  };
  JIGE_DO(for_each_line(path, take_the_one_before));
  if (const Status last = take(pending, pending_number); !last)
    log_warn("{}", last.error().message);
  if (log.training.empty()) {
    return fail(Code::kCorrupt, "{}: holds no step with a loss; it must be the log.jsonl of a run",
                path);
  }
  return log;
}

// Means over about a fortieth of the curve, which show the trend through the noise of single steps.
std::vector<ChartPoint> smoothed(const std::vector<ChartPoint>& points) {
  const double window = std::max(1.0, static_cast<double>(points.size()) / 40);
  const double keep = 1 - 1 / window;
  std::vector<ChartPoint> out;
  double mean = 0, weight = 0;
  for (const ChartPoint& point : points) {
    if (!std::isfinite(point.y)) continue;
    mean = keep * mean + (1 - keep) * point.y;
    weight = keep * weight + (1 - keep);
    out.push_back({point.x, mean / weight});
  }
  return out;
}

class PlotLossCommand final : public Command {
 public:
  void declare(Flags& flags) override {
    flags.about("Draws the loss of a run, in training and on held-out data, as an SVG picture.");
    flags.text("RUN", run_, "folder of a run, or its log.jsonl");
    flags.text("-o,--out FILE", out_, "the picture; without it RUN/loss.svg");
    flags.text("--title TEXT", title_, "above the picture");
    output_.declare(flags, "print one JSON object with the last losses");
    flags.example("jige plot-loss runs/first");
    flags.example("jige plot-loss runs/first/log.jsonl --out docs/loss.svg --title \"First run\"");
  }

  Status run() override {
    output_.apply();
    const std::filesystem::path given(run_);
    std::error_code error;
    const bool folder = std::filesystem::is_directory(given, error);
    const std::string log_path = folder ? (given / "log.jsonl").string() : run_;
    if (out_.empty()) {
      out_ = ((folder ? given : given.parent_path()) / "loss.svg").string();
    }
    JIGE_TRY(const LossLog log, read_log(log_path));
    LineChart chart{.title = title_, .x_label = "step", .y_label = "loss (nats per token)"};
    chart.subtitle = fmt::format("{} steps", log.training.size());
    if (log.tokens > 0) chart.subtitle += fmt::format(", {} tokens", format_count(log.tokens));
    if (log.seconds > 0) chart.subtitle += fmt::format(", {}", format_duration(log.seconds));
    chart.series = {{.name = "", .color = "#b6d4fe", .stroke = 1.2, .points = log.training},
                    {.name = "training", .color = "#1f6feb", .points = smoothed(log.training)},
                    {.name = "held-out",
                     .color = "#d1570a",
                     .dots = true,
                     .label_last = true,
                     .points = log.held_out}};
    JIGE_DO(write_file_atomic(out_, render_svg(chart)));
    if (output_.json) {
      Json json{{"picture", out_}, {"steps", log.training.size()}, {"loss", log.training.back().y}};
      json["eval_loss"] = log.held_out.empty() ? Json(nullptr) : Json(log.held_out.back().y);
      print_json(json);
    } else {
      log_info("{}: {} steps, {} measurements on held-out data", out_, log.training.size(),
               log.held_out.size());
    }
    return {};
  }

 private:
  std::string run_, out_, title_ = "Training loss";
  OutputFlags output_;
};

}  // namespace

std::unique_ptr<Command> make_plot_loss_command() { return std::make_unique<PlotLossCommand>(); }

}  // namespace jige::cli
