// The planning half of sweep.h.
#include <algorithm>
#include <bit>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>
#include <span>

#include "formats/xxhash64.h"
#include "plan/trial_rungs.h"
#include "train/option_flags.h"
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

// Of all that a trial reads; `weights` holds those of folders that are known.
Result<std::string> checksum_inputs(const RunSetup& setup,
                                    std::map<std::string, std::string>& weights) {
  Json inputs = *setup.identity;  // with the hashes of data, and of the base of an adapter
  inputs["eval_content"] = setup.dataset.eval_keys;
  const TrainOptions& options = setup.options;
  if (!options.init_folder.empty() && !options.lora) {
    const auto [known, fresh] = weights.emplace(options.init_folder, "");
    if (fresh) {
      JIGE_TRY(known->second, hash_weights(options.init_folder));
    }
    inputs["from"] = known->second;
  }
  const std::string text = text_without(std::move(inputs), kOfSchedule);
  return formats::checksum_text(formats::xxhash64(std::as_bytes(std::span(text))));
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

// A trial that begins with steps of another has no checkpoint of that one's best measurement.
Status check_last_weights(const std::vector<SweepTrial>& trials) {
  for (const SweepTrial& trial : trials) {
    if (!trial.options.keeps_best()) continue;
    return fail(
        Code::kUnsupported,
        "trial {}: {} is not of sweeps, whose trials keep their last weights: leave it out; "
        "the table says where each measured best",
        trial.name, flag_of(trial.options.patience > 0 ? "patience" : "keep_best"));
  }
  return {};
}

// Where trials are compared: steps behind which all of them measure what is held out.
Result<std::vector<int64_t>> plan_rungs(const SweepPlan& plan) {
  const SweepHalving& halving = plan.halving;
  if (halving.factor < 2 || halving.factor > plan::kHalvingFactorMax || halving.first_step < 0) {
    return fail(Code::kInvalidArgument, "--halving {}: one of 2 to {} trials can go on",
                halving.factor, plan::kHalvingFactorMax);
  }
  plan::RungRequest request{
      .trials = std::ssize(plan.trials), .factor = halving.factor, .first = halving.first_step};
  for (const SweepTrial& trial : plan.trials) {
    request.steps = std::max(request.steps, trial.options.schedule.steps_total);
  }
  for (const SweepTrial& trial : plan.trials) {
    const TrainOptions& options = trial.options;
    if (options.eval_every_steps == 0 ||
        (options.data.eval_files.empty() && options.data.eval_fraction <= 0)) {
      return fail(
          Code::kInvalidArgument,
          "trial {}: --halving compares trials by what is held out, which this one does not "
          "measure on its way; give --eval-every and held-out data",
          trial.name);
    }
    request.every = std::lcm(request.every, std::min<int64_t>(options.eval_every_steps, INT32_MAX));
    if (request.every > std::min<int64_t>(request.steps, INT32_MAX)) break;  // no multiple fits
  }
  if (halving.first_step % request.every != 0) {
    return fail(Code::kInvalidArgument,
                "--first-rung {}: is no multiple of the {} steps of --eval-every, behind which "
                "held-out loss is measured",
                halving.first_step, request.every);
  }
  std::vector<int64_t> rungs = plan::rung_steps(request);
  if (!rungs.empty() || request.trials < 2) return rungs;
  return fail(Code::kInvalidArgument,
              "--halving {}: trials of {} steps, all measured every {} (--eval-every), cannot be "
              "compared before their end; choose a smaller --eval-every{}",
              halving.factor, request.steps, request.every,
              halving.first_step > 0 ? " or --first-rung" : "");
}

}  // namespace

std::string trial_folder(const std::string& out_folder, const std::string& name) {
  return out_folder + "/trials/" + name;
}

plan::TrialTree plan_runs(const SweepPlan& plan, std::span<const size_t> trials, int64_t until) {
  std::vector<plan::TrialSteps> steps;
  for (const size_t trial : trials) {
    const SweepTrial& planned = plan.trials[trial];
    const int64_t total = planned.options.schedule.steps_total;
    std::string common = common_of(planned);
    if (planned.options.dropout_pool > 0) common += fmt::format(" {}", total);  // decides turns
    steps.push_back({.common = std::move(common), .steps = std::min(total, until)});
  }
  plan::TrialTree tree = plan::plan_trials(steps, [&](size_t place, int64_t step) {
    const TrainOptions& options = plan.trials[trials[place]].options;
    return std::bit_cast<uint64_t>(learning_rate(options.schedule, step));
  });
  for (plan::TrialRun& run : tree.runs) run.trial = trials[run.trial];
  return tree;
}

Result<SweepPlan> plan_sweep(std::vector<SweepTrial> trials, const std::string& out_folder,
                             const SweepHalving& halving, const TrainCallbacks& callbacks,
                             ThreadTeam& team, const WalkProgress& on_prepared) {
  JIGE_DO(check_different(trials));
  JIGE_DO(check_last_weights(trials));
  remove_run_remains(out_folder);
  SweepPlan plan{.trials = std::move(trials), .halving = halving};
  struct Counted {
    int64_t steps = 0;
    std::string inputs;
  };
  std::map<std::string, Counted> counted;  // by what decides the number of steps
  std::map<std::string, std::string> weights;
  for (SweepTrial& trial : plan.trials) {
    TrainOptions& options = trial.options;
    options.out_folder = trial_folder(out_folder, trial.name);
    options.data.cache_folder = out_folder + "/cache";
    const std::string key =
        fmt::format("{} {} {}", options.steps, options.epochs, common_of(trial));
    if (!counted.contains(key)) {
      auto setup = prepare_run(options, callbacks, team);
      if (!setup) return with_context(std::move(setup.error()), "trial {}", trial.name);
      JIGE_TRY(std::string inputs, checksum_inputs(*setup, weights));
      counted[key] = {.steps = setup->plan.steps_total, .inputs = std::move(inputs)};
    }
    options.schedule.steps_total = counted[key].steps;
    trial.inputs = counted[key].inputs;
    if (Status valid = validate(options.schedule); !valid) {
      return with_context(std::move(valid.error()), "trial {}", trial.name);
    }
    const int64_t done = &trial - plan.trials.data() + 1;
    if (on_prepared && !on_prepared(done, std::ssize(plan.trials))) {
      return fail(Code::kCancelled, "{}: stopped before the first trial", out_folder);
    }
  }
  if (halving.factor != 0) {
    JIGE_TRY(plan.rungs, plan_rungs(plan));
  }
  std::vector<size_t> all(plan.trials.size());
  std::iota(all.begin(), all.end(), size_t{0});
  plan.tree = plan_runs(plan, all, plan.rungs.empty() ? INT64_MAX : plan.rungs.front());
  return plan;
}

int64_t steps_behind_rung(const SweepPlan& plan, size_t rung) {
  const int64_t begin = plan.rungs[rung];
  const int64_t until = rung + 1 < plan.rungs.size() ? plan.rungs[rung + 1] : INT64_MAX;
  std::vector<int64_t> steps;  // of each trial that comes so far, if it goes on
  for (const SweepTrial& trial : plan.trials) {
    const int64_t total = trial.options.schedule.steps_total;
    if (total > begin) steps.push_back(std::min(total, until) - begin);
  }
  int64_t going_on = std::ssize(steps);
  for (size_t i = 0; i <= rung; ++i) {
    going_on = plan::count_going_on(going_on, plan.halving.factor);
  }
  std::ranges::sort(steps, std::greater());
  return std::accumulate(steps.begin(), steps.begin() + going_on, int64_t{0});
}

SweepRecord new_record(const SweepPlan& plan, const SweepOptions& options) {
  SweepRecord record{.flags = options.flags,
                     .steps_run = plan.tree.steps_run,
                     .branches_at_once = plan.tree.branches_at_once,
                     .halving_factor = plan.halving.factor,
                     .rungs = plan.rungs};
  for (const SweepTrial& trial : plan.trials) {
    record.trials.push_back({.name = trial.name,
                             .settings = trial.settings,
                             .steps = trial.options.schedule.steps_total,
                             .inputs = trial.inputs});
    record.steps_all += record.trials.back().steps;
  }
  for (size_t rung = 0; rung < plan.rungs.size(); ++rung) {
    record.steps_run += steps_behind_rung(plan, rung);
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
