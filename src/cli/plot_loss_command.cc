// jige plot-loss: the loss curve of a run as an SVG picture.
#include <filesystem>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>

#include "base/counted.h"
#include "base/file.h"
#include "base/log.h"
#include "cli/command.h"
#include "cli/commands.h"
#include "cli/flags.h"
#include "cli/line_chart.h"
#include "cli/output.h"
#include "cli/run_log.h"

namespace jige::cli {
namespace {

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
    JIGE_TRY(const RunLog log, read_run_log(log_path));
    JIGE_DO(write_file_atomic(out_, render_svg(loss_chart(log, title_))));
    if (output_.json) {
      Json json{{"picture", out_}, {"steps", log.training.size()}, {"loss", log.training.back().y}};
      json["eval_loss"] = log.held_out.empty() ? Json(nullptr) : Json(log.held_out.back().y);
      print_json(json);
    } else {
      log_info("{}: {}, {} on held-out data", out_, counted(std::ssize(log.training), "step"),
               counted(std::ssize(log.held_out), "measurement"));
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
