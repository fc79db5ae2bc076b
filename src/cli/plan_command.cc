// jige plan train: the fastest way to train that fits the memory.
#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/file.h"
#include "cli/command.h"
#include "cli/commands.h"
#include "cli/flags.h"
#include "cli/output.h"
#include "cli/pipeline_flags.h"
#include "cli/pipeline_report.h"
#include "cli/train_plan_progress.h"
#include "plan/pipeline_schedule_json.h"
#include "train/machine_identity.h"

namespace jige::cli {
namespace {

class PlanTrainCommand final : public Command {
 public:
  void declare(Flags& flags) override {
    flags.about(
        "Plans how to train a model on several devices with limited memory: in which order passes "
        "run, how the model is cut into stages, what stays on the host, and how long a step should "
        "take. Tries every combination, and keeps the fastest that fits. If nothing fits, it says "
        "which budget to raise, and to how much. Times are simulated "
        "from assumed, given or measured costs. With --device the plan is for GPUs here, and "
        "`jige train --plan` runs it on them.");
    pipeline_.declare(flags);
    flags.section("Result");
    flags.text("-o,--out FILE", out_, "write the plan with its whole schedule as JSON");
    flags.text("--svg FILE", svg_, "draw the timeline of a step");
    flags.toggle("--tasks", tasks_, "list every task of the schedule, queue by queue");
    output_.declare(flags, "print one JSON object");
    flags.example("jige plan train --size 110m --devices 4 --device-memory 4GiB");
    flags.example(
        "jige plan train models/llama-3.2-1b --devices 2 --device-memory 8GiB -o plan.json");
    flags.example("jige plan train models/llama-3.1-8b --device cuda:all --measure -o plan.json");
  }

  Status run() override {
    output_.apply();
    JIGE_DO(check_output_files({out_, svg_}));
    const bool quiet = output_.quiet || output_.json;
    pipeline_.quiet = quiet;
    JIGE_TRY(const plan::TrainPlanRequest request, pipeline_.request());
    JIGE_TRY(const plan::TrainPlan plan,
             plan::plan_train(request, TrainPlanProgress(quiet).listener()));
    Json json{{"choice", choice_json(plan.choice)},
              {"prediction", prediction_json(plan.prediction)},
              {"binding", plan.binding},
              {"candidates", plan.candidate_count}};
    const std::vector<int>& gpus = pipeline_.gpus();
    if (!gpus.empty()) json["gpu_shares"] = gpu_shares_json(plan, request.budget, gpus);
    if (!svg_.empty()) {
      JIGE_DO(write_timeline(svg_, plan.schedule, request.costs, pipeline_.summary()));
    }
    if (!out_.empty()) {
      Json whole = json;
      whole["costs"] = plan::costs_to_json(request.costs);
      if (pipeline_.measure) whole["machine"] = train::machine_identity();
      if (!gpus.empty()) {
        JIGE_TRY(whole["gpus"], train::gpus_identity(gpus));
      }
      whole["schedule"] = plan::schedule_to_json(plan.schedule);
      JIGE_DO(write_file_atomic(out_, dump_json(whole) + "\n"));
    }
    if (output_.json) {
      print_json(json);
    } else {
      print_text(
          fmt::format("{}\n\n{}", pipeline_.summary(), plan_text(plan, request.budget, gpus)));
      if (tasks_) print_text("\n" + plan::to_text(plan.schedule));
    }
    return {};
  }

 private:
  PipelineFlags pipeline_;
  std::string out_, svg_;
  bool tasks_ = false;
  OutputFlags output_;
};

}  // namespace

std::unique_ptr<Command> make_plan_train_command() { return std::make_unique<PlanTrainCommand>(); }

}  // namespace jige::cli
