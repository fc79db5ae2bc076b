// jige sweep: several trainings that differ in a few flags.
#include <fmt/format.h>

#include <filesystem>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "base/progress.h"
#include "cli/command.h"
#include "cli/commands.h"
#include "cli/flags.h"
#include "cli/interrupt.h"
#include "cli/new_model.h"
#include "cli/output.h"
#include "cli/shell_word.h"
#include "cli/sweep_trials.h"
#include "cli/sweep_view.h"
#include "cli/train_checks.h"
#include "cli/train_report.h"
#include "formats/checkpoint.h"
#include "plan/trial_rungs.h"
#include "train/run_lock.h"
#include "train/sweep.h"

namespace jige::cli {
namespace {

namespace fs = std::filesystem;

// Trials are looked at without a bar where it takes no longer.
constexpr double kTrialsShownAfter_s = 0.5;

class SweepCommand final : public Command {
 public:
  void declare(Flags& flags) override {
    flags.about(
        "Trains once for every combination of the values of --grid, put onto the flags of `jige "
        "train` that stand behind --. Steps that trials have in common are trained once: those of "
        "equal flags and equal learning rates, as before the rates of --schedule wsd fall. Every "
        "trial ends with the bits of the same run alone, in OUT/trials, and OUT/sweep.json says "
        "what came of all. A sweep that was stopped, or killed, goes on when the same command is "
        "given again. Ctrl-C stops behind a checkpoint.");
    flags.text("-o,--out FOLDER", out_, "the sweep: sweep.json, and a run for each trial");
    flags.texts("--grid FLAG=A,B", grid_,
                "a flag of `jige train`, without dashes, and its values; given several times, "
                "trials are all combinations");
    flags.texts("FLAGS...", words_, "behind --: the flags of `jige train` that all trials have");
    flags.integer("--halving N", halving_.factor, {.min = 2, .max = plan::kHalvingFactorMax},
                  "compare trials on their way by held-out loss and go on with one of N, again and "
                  "again until one is left; without it all run to their end");
    flags.integer("--first-rung STEP", halving_.first_step, {},
                  "with --halving: where they are first compared, N times as far on for the second "
                  "time; 0: where one trial is left for the last part");
    flags.choice("--keep WHAT", keep_, {"models", "all", "best"},
                 "of trials that have ended: models and logs, checkpoints as well, those of "
                 "trials that were dropped among them, or the model of the best trial alone");
    flags.toggle("--plan-only", plan_only_,
                 "say which steps are shared, and stop; the data is read for it");
    output_.declare(flags,
                    "JSON lines: the plan, then for every trial what `jige train --json` prints, "
                    "behind a line that names it, then the result");
    flags.example(
        "jige sweep --out runs/rates --grid lr=5e-4,1e-3,2e-3 -- --data a.jsonl --steps 2000");
    flags.example(
        "jige sweep --out runs/wsd --grid lr=1e-3,2e-3 --grid decay-share=0.1,0.3 -- --data "
        "a.jsonl --size 15m --steps 2000 --schedule wsd --warmup 50");
    flags.example(
        "jige sweep --out runs/many --grid lr=5e-4,1e-3,2e-3 --grid weight-decay=0,0.1,0.3 "
        "--halving "
        "3 -- --data a.jsonl --steps 2700 --eval-every 100");
  }

  Status run() override {
    output_.apply();
    outlive_readers();
    const InterruptScope interrupts;
    if (out_.empty()) {
      return fail(Code::kInvalidArgument, "--out is missing: name the folder of the sweep");
    }
    if (halving_.first_step != 0 && halving_.factor == 0) {
      return fail(Code::kInvalidArgument, "--first-rung needs --halving");
    }
    JIGE_TRY(const std::vector<GridFlag> grid, read_grid(grid_));
    JIGE_TRY(std::vector<TrialRequest> requests, make_trials(grid, words_, out_));
    JIGE_DO(check_folders(out_));
    JIGE_DO(check_no_model(out_));
    if (!formats::list_checkpoints(out_ + "/checkpoints").empty()) {
      return fail(Code::kInvalidArgument,
                  "{}: is the folder of a run; name another one for the sweep", out_);
    }
    JIGE_TRY(train::RunLock taken, train::RunLock::take(out_));
    const auto lock = std::make_shared<train::RunLock>(std::move(taken));
    JIGE_DO(prepare_models(requests, lock));
    return run_prepared(std::move(requests));
  }

 private:
  // Tokenizers that trials would train alike are trained once, until the sweep has begun.
  Status prepare_models(std::vector<TrialRequest>& requests,
                        const std::shared_ptr<train::RunLock>& lock) const {
    std::error_code error;
    const bool begun = fs::exists(out_ + "/sweep.json", error);
    std::map<std::string, std::string> tokenizers;
    for (TrialRequest& request : requests) {
      TrainFlags& flags = request.flags;
      train::TrainOptions& options = request.trial.options;
      if (!options.init_folder.empty()) {
        if (!flags.tokenizer_folder.empty()) options.tokenizer_folder = flags.tokenizer_folder;
        continue;
      }
      const std::string key = dump_json(Json{{"size", flags.shape.size},
                                             {"config", flags.config_file},
                                             {"vocab", flags.vocab_size},
                                             {"files", options.data.files},
                                             {"field", options.data.text_field},
                                             {"skip", options.data.skip_bad}});
      const auto [known, fresh] = tokenizers.emplace(key, "");
      const std::string base =
          tokenizers.size() == 1 ? out_ : fmt::format("{}/tokenizers/{}", out_, tokenizers.size());
      const bool there = begun && fs::exists(base + "/tokenizer/tokenizer.json", error);
      const bool own = flags.tokenizer_folder.empty();
      if (own && (!fresh || there)) {
        flags.tokenizer_folder = fresh ? base + "/tokenizer" : known->second;
        flags.vocab_size = 0;
      }
      options.out_folder = base;
      options.lock = lock;
      Status prepared = prepare_new_model(flags, output_.quiet, options);
      options.lock.reset();
      if (!prepared) {
        return with_context(std::move(prepared.error()), "trial {}", request.trial.name);
      }
      if (fresh) known->second = options.tokenizer_folder;
    }
    return {};
  }

  Status run_prepared(std::vector<TrialRequest> requests) const {
    const DeviceFlags device = requests.front().device;
    JIGE_TRY(const double flops_per_s,
             measure_training_rate(device, requests.front().trial.options));
    std::vector<train::SweepTrial> trials;
    for (TrialRequest& request : requests) {
      request.trial.options.gemm_flops_per_s = flops_per_s;
      trials.push_back(std::move(request.trial));
    }
    requests.clear();
    JIGE_TRY(const train::SweepPlan plan, make_plan(std::move(trials), device));
    const train::SweepOptions options{.out_folder = out_,
                                      .flags = words_,
                                      .keep = keep_ == "all"    ? train::SweepKeep::kAll
                                              : keep_ == "best" ? train::SweepKeep::kBest
                                                                : train::SweepKeep::kModels};
    const train::SweepRecord record = train::new_record(plan, options);
    if (output_.json) {
      print_json(sweep_plan_json(record));
    } else if (plan_only_) {
      print_text(sweep_plan_text(record) + "\n" + sweep_table(record));
    } else {
      log_info("{}", sweep_plan_text(record));
    }
    return plan_only_ ? Status() : run_trials(plan, options, record);
  }

  Result<train::SweepPlan> make_plan(std::vector<train::SweepTrial> trials,
                                     const DeviceFlags& device) const {
    JIGE_TRY(const ComputeDevices devices, device.make());
    TrainReport report(output_);
    const int64_t count = std::ssize(trials);
    const StopWatch watch;
    Progress progress("looking at trials", count, output_.quiet);
    return train::plan_sweep(std::move(trials), out_, halving_, report.callbacks(), devices.team(),
                             [&](int64_t done, int64_t) {
                               if (watch.seconds() > kTrialsShownAfter_s) progress.update(done, "");
                               return !interrupted();
                             });
  }

  Status run_trials(const train::SweepPlan& plan, const train::SweepOptions& options,
                    const train::SweepRecord& planned) const {
    std::unique_ptr<TrainReport> report;
    const auto on_trial = [&](const train::SweepPlace& place) {
      report = std::make_unique<TrainReport>(output_);
      if (output_.json) print_json(trial_json(place, planned));
      log_info("{}", trial_text(place, planned));
      return report->callbacks();
    };
    JIGE_TRY(const train::SweepRecord record,
             train::run_sweep(
                 plan, options,
                 {.on_trial = on_trial,
                  .on_result = [&](const train::TrainResult& result) { report->finish(result); },
                  .on_ended = {},
                  .on_rung =
                      [&](const train::RungResult& rung, const train::SweepRecord& now) {
                        if (output_.json) print_json(rung_json(rung, now));
                        log_info("{}", rung_text(rung, now));
                      }}));
    if (output_.json) {
      Json json = {{"kind", "sweep"}};
      json.update(record.to_json());
      print_json(json);
    } else {
      print_text(sweep_table(record));
      if (const auto best = train::best_trial(record)) {
        log_info("the best: {}; talk to it with `jige chat {}`",
                 settings_text(record.trials[*best].settings),
                 shell_word(out_ + "/" + record.trials[*best].folder()));
      }
    }
    return {};
  }

  std::string out_, keep_ = "models";
  std::vector<std::string> grid_, words_;
  train::SweepHalving halving_;
  bool plan_only_ = false;
  OutputFlags output_;
};

}  // namespace

std::unique_ptr<Command> make_sweep_command() { return std::make_unique<SweepCommand>(); }

}  // namespace jige::cli
