// jige simulate train: what every schedule would do on a machine, in virtual time.
#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/check.h"
#include "cli/command.h"
#include "cli/commands.h"
#include "cli/flags.h"
#include "cli/output.h"
#include "cli/pipeline_flags.h"
#include "cli/pipeline_report.h"
#include "cli/table.h"
#include "cli/train_plan_progress.h"

namespace jige::cli {
namespace {

class SimulateTrainCommand final : public Command {
 public:
  void declare(Flags& flags) override {
    flags.about(
        "Simulates one training step under every schedule, each with its best stages for the "
        "machine described: time of the step, bubble (idle part of the devices' time), peak "
        "memory. For machines at hand and machines only imagined; nothing is measured. With "
        "--schedule, that one alone.");
    pipeline_.declare(flags);
    flags.section("Result");
    flags.text("--svg FILE", svg_, "draw the timeline of the fastest");
    output_.declare(flags, "print one JSON object");
    flags.example("jige simulate train --size 110m --devices 4 --micro-batches 8");
    flags.example("jige simulate train --costs costs.json --devices 8 --svg step.svg");
  }

  Status run() override {
    output_.apply();
    JIGE_DO(check_output_files({svg_}));
    const bool quiet = output_.quiet || output_.json;
    pipeline_.quiet = quiet;
    JIGE_TRY(const plan::TrainPlanRequest request, pipeline_.request());
    JIGE_TRY(const std::vector<plan::KindOutcome> outcomes,
             plan::plan_each_kind(request, TrainPlanProgress(quiet).listener()));
    const plan::KindOutcome* fastest = nullptr;
    for (const plan::KindOutcome& outcome : outcomes) {
      if (!outcome.best) continue;
      if (!fastest || outcome.prediction.step_s < fastest->prediction.step_s) fastest = &outcome;
    }
    if (!svg_.empty() && fastest) {
      JIGE_TRY(const plan::PipelineSchedule schedule, plan::generate_pipeline(*fastest->best));
      JIGE_DO(write_timeline(svg_, schedule, request.costs, pipeline_.summary()));
    }
    output_.json ? print_as_json(outcomes) : print_as_text(outcomes);
    if (fastest) return {};
    // Of all together, what comes closest.
    const Result<plan::TrainPlan> none =
        plan::plan_train(request, TrainPlanProgress(quiet).listener());
    JIGE_CHECK(!none.has_value(), "a schedule runs that none of its kind is");
    return fail(none.error().code, "no schedule runs: {}", none.error().message);
  }

 private:
  static void print_as_json(const std::vector<plan::KindOutcome>& outcomes) {
    Json json{{"simulated", true}, {"schedules", Json::array()}};
    for (const plan::KindOutcome& outcome : outcomes) {
      Json entry{{"schedule", plan::schedule_name(outcome.kind)}};
      if (outcome.best) {
        entry["choice"] = choice_json(*outcome.best);
        entry["prediction"] = prediction_json(outcome.prediction);
      } else {
        entry["refusal"] = outcome.refusal;
      }
      json["schedules"].push_back(std::move(entry));
    }
    print_json(json);
  }

  void print_as_text(const std::vector<plan::KindOutcome>& outcomes) const {
    using enum Table::Align;
    Table table({{"schedule"},
                 {"step", kRight},
                 {"bubble", kRight},
                 {"device", kRight},
                 {"host", kRight},
                 {"stages", kRight},
                 {"optimizer"},
                 {"recompute"}});
    std::string refusals;
    for (const plan::KindOutcome& outcome : outcomes) {
      const std::string name{plan::schedule_name(outcome.kind)};
      if (!outcome.best) {
        table.row({name, "-", "-", "-", "-", "-", "", ""});
        refusals += fmt::format("{}: {}\n", name, outcome.refusal);
        continue;
      }
      const plan::ScheduleRequest& choice = *outcome.best;
      const plan::TrainPrediction& p = outcome.prediction;
      table.row({name, seconds_text(p.step_s), fmt::format("{:.1f} %", 100 * p.bubble),
                 format_bytes(p.device_bytes), format_bytes(p.host_bytes),
                 choice.forward_stages == choice.backward_stages
                     ? fmt::format("{}", choice.forward_stages)
                     : fmt::format("{}/{}", choice.forward_stages, choice.backward_stages),
                 std::string(plan::optimizer_name(choice.optimizer)),
                 choice.recompute ? "on" : "off"});
    }
    std::string text =
        fmt::format("{}; simulated, not measured\n{}", pipeline_.summary(), table.render());
    if (!refusals.empty()) text += "\nWhat does not run:\n" + refusals;
    print_text(text);
  }

  PipelineFlags pipeline_;
  std::string svg_;
  OutputFlags output_;
};

}  // namespace

std::unique_ptr<Command> make_simulate_train_command() {
  return std::make_unique<SimulateTrainCommand>();
}

}  // namespace jige::cli
