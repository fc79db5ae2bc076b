// jige report: a training run as one HTML page.
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "base/counted.h"
#include "base/file.h"
#include "base/log.h"
#include "cli/command.h"
#include "cli/commands.h"
#include "cli/flags.h"
#include "cli/input.h"
#include "cli/output.h"
#include "cli/run_log.h"
#include "cli/run_report.h"

namespace jige::cli {
namespace {

class ReportCommand final : public Command {
 public:
  void declare(Flags& flags) override {
    flags.about(
        "Writes one HTML page about a training run, readable without a network: loss, speed and "
        "memory; of runs by a pipeline schedule also the timeline of a step, predicted beside "
        "measured, where the devices' time went, and memory against its budget.");
    flags.text("RUN", run_, "folder of a run");
    flags.text("-o,--out FILE", out_, "the page; without it RUN/report.html");
    flags.text("--title TEXT", title_, "above the page; without it the name of the folder");
    output_.declare(flags, "print one JSON object with what the page shows");
    flags.example("jige report runs/first");
    flags.example("jige report runs/first --out first.html --title \"First run\"");
  }

  Status run() override {
    output_.apply();
    JIGE_DO(check_run_folder(run_));
    const std::filesystem::path folder(run_);
    const std::string log_path = (folder / "log.jsonl").string();
    std::error_code error;
    if (!std::filesystem::exists(log_path, error)) {
      return fail(Code::kNotFound, "{}: holds no log.jsonl, so it is not the folder of a run",
                  run_);
    }
    JIGE_TRY(const RunLog log, read_run_log(log_path));
    const std::string record_path = (folder / "pipeline.json").string();
    std::optional<train::PipelineRecord> record;
    if (std::filesystem::exists(record_path, error)) {
      JIGE_TRY(record, train::read_pipeline_record(record_path));
    }
    if (out_.empty()) out_ = (folder / "report.html").string();
    if (title_.empty()) {
      // Of "runs/first/" and of "." as well.
      const std::filesystem::path whole = std::filesystem::absolute(folder, error) / "";
      title_ = whole.lexically_normal().parent_path().filename().string();
    }
    JIGE_TRY(const std::string page, run_report_html(title_, log, record));
    JIGE_DO(write_file_atomic(out_, page));
    if (output_.json) {
      print_json(Json{{"page", out_},
                      {"steps", log.training.size()},
                      {"ranks", log.ranks},
                      {"wait_s", log.wait_total_s},
                      {"schedule", record ? Json(record->schedule.name) : Json(nullptr)},
                      {"measured_steps", record ? record->steps.size() : 0}});
    } else {
      log_info("{}: {}{}", out_, counted(std::ssize(log.training), "step"),
               record ? ", schedule " + record->schedule.name : "");
    }
    return {};
  }

 private:
  std::string run_, out_, title_;
  OutputFlags output_;
};

}  // namespace

std::unique_ptr<Command> make_report_command() { return std::make_unique<ReportCommand>(); }

}  // namespace jige::cli
