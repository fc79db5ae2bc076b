// The planning half of sweep.h.
#include <bit>
#include <map>
#include <nlohmann/json.hpp>

#include "train/run_remains.h"
#include "train/run_setup.h"
#include "train/sweep.h"

namespace jige::train {
namespace {

// Options that decide neither weights nor losses.
constexpr const char* kHabits[] = {"out_folder",
                                   "eval_every_steps",
                                   "eval_tokens_max",
                                   "checkpoint_every_steps",
                                   "checkpoint_every_seconds",
                                   "checkpoints_kept",
                                   "export_dtype",
                                   "threads",
                                   "memory_limit_bytes"};
// Options that decide the rates of steps, and how many there are.
constexpr const char* kOfSchedule[] = {"schedule", "steps", "epochs", "out_folder"};

template <size_t N>
std::string text_without(Json json, const char* const (&fields)[N]) {
  for (const char* field : fields) json.erase(field);
  return dump_json(json);
}

// What every step of a trial depends on, apart from its learning rate.
std::string common_of(const SweepTrial& trial) {
  return text_without(options_json(trial.options), kOfSchedule);
}

Status check_different(const std::vector<SweepTrial>& trials) {
  std::map<std::string, const SweepTrial*> seen;
  for (const SweepTrial& trial : trials) {
    const auto [first, fresh] =
        seen.emplace(text_without(options_json(trial.options), kHabits), &trial);
    if (fresh) continue;
    return fail(Code::kInvalidArgument,
                "trials {} and {} would be the same run: what tells them apart decides no result; "
                "leave one out",
                first->second->name, trial.name);
  }
  return {};
}

}  // namespace

std::string trial_folder(const std::string& out_folder, const std::string& name) {
  return out_folder + "/trials/" + name;
}

Result<SweepPlan> plan_sweep(std::vector<SweepTrial> trials, const std::string& out_folder,
                             const TrainCallbacks& callbacks, ThreadTeam& team,
                             const WalkProgress& on_prepared) {
  JIGE_DO(check_different(trials));
  remove_run_remains(out_folder);
  SweepPlan plan{.trials = std::move(trials)};
  std::vector<plan::TrialSteps> steps;
  std::map<std::string, int64_t> counted;  // steps by what decides their number
  for (SweepTrial& trial : plan.trials) {
    TrainOptions& options = trial.options;
    options.out_folder = trial_folder(out_folder, trial.name);
    options.data.cache_folder = out_folder + "/cache";
    std::string common = common_of(trial);
    const std::string key = fmt::format("{} {} {}", options.steps, options.epochs, common);
    if (!counted.contains(key)) {
      auto setup = prepare_run(options, callbacks, team);
      if (!setup) return with_context(std::move(setup.error()), "trial {}", trial.name);
      counted[key] = setup->plan.steps_total;
    }
    options.schedule.steps_total = counted[key];
    if (Status valid = validate(options.schedule); !valid) {
      return with_context(std::move(valid.error()), "trial {}", trial.name);
    }
    steps.push_back({.common = std::move(common), .steps = options.schedule.steps_total});
    const auto done = std::ssize(steps);
    if (on_prepared && !on_prepared(done, std::ssize(plan.trials))) {
      return fail(Code::kCancelled, "{}: stopped before the first trial", out_folder);
    }
  }
  plan.tree = plan::plan_trials(steps, [&](size_t trial, int64_t step) {
    return std::bit_cast<uint64_t>(learning_rate(plan.trials[trial].options.schedule, step));
  });
  return plan;
}

SweepRecord new_record(const SweepPlan& plan, const SweepOptions& options) {
  SweepRecord record{.flags = options.flags,
                     .steps_all = plan.tree.steps_all,
                     .steps_run = plan.tree.steps_run,
                     .branches_at_once = plan.tree.branches_at_once};
  for (const SweepTrial& trial : plan.trials) {
    record.trials.push_back({.name = trial.name,
                             .settings = trial.settings,
                             .steps = trial.options.schedule.steps_total});
  }
  for (const plan::TrialRun& run : plan.tree.runs) {
    if (!run.from) continue;
    const size_t source = plan.tree.runs[plan.tree.branches[*run.from].run].trial;
    record.trials[run.trial].shared_steps = run.begin;
    record.trials[run.trial].shared_with = plan.trials[source].name;
  }
  return record;
}

}  // namespace jige::train
