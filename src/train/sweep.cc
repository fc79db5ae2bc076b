// The running half of sweep.h.
#include "train/sweep.h"

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/file.h"
#include "base/log.h"
#include "formats/checkpoint.h"
#include "formats/staged_folder.h"
#include "train/run_lock.h"
#include "train/trainer.h"
#include "train/trial_start.h"

namespace jige::train {
namespace {

namespace fs = std::filesystem;

bool is_there(const std::string& path) {
  std::error_code error;
  return fs::exists(path, error);
}

Status remove_if_there(const std::string& folder) {
  return is_there(folder) ? formats::remove_folder(folder) : Status();
}

// The trials of two records, without what has become of them.
bool same_trials(const SweepRecord& one, const SweepRecord& other) {
  return one.flags == other.flags &&
         std::ranges::equal(
             one.trials, other.trials, [](const TrialRecord& a, const TrialRecord& b) {
               return a.name == b.name && a.settings == b.settings && a.steps == b.steps &&
                      a.shared_steps == b.shared_steps && a.shared_with == b.shared_with;
             });
}

class Sweep {
 public:
  Sweep(const SweepPlan& plan, const SweepOptions& options, const SweepCallbacks& callbacks,
        SweepRecord record)
      : plan_(plan), options_(options), callbacks_(callbacks), record_(std::move(record)) {}

  Result<SweepRecord> run() {
    JIGE_DO(make_folders(options_.out_folder + "/trials"));
    JIGE_DO(save());
    for (size_t r = 0; r < plan_.tree.runs.size(); ++r) {
      if (state_of(r) == TrialState::kWaiting) JIGE_DO(begin(r));
      JIGE_DO(give_up_branches(r));
      if (state_of(r) == TrialState::kWaiting) {
        Status ran = run_trial(r);
        if (!ran) {
          const std::string& name = record_of(r).name;
          return with_context(std::move(ran.error()), "trial {}", name);
        }
      }
      JIGE_DO(tidy(r));
    }
    JIGE_DO(remove_if_there(options_.out_folder + "/branches"));
    return std::move(record_);
  }

 private:
  const plan::TrialRun& planned(size_t run) const { return plan_.tree.runs[run]; }
  const TrainOptions& options_of(size_t run) const {
    return plan_.trials[planned(run).trial].options;
  }
  TrialRecord& record_of(size_t run) { return record_.trials[planned(run).trial]; }
  TrialState state_of(size_t run) { return record_of(run).state; }
  std::string checkpoints_of(size_t run) const {
    return options_of(run).out_folder + "/checkpoints";
  }
  bool has_begun(size_t run) const {
    return !formats::list_checkpoints(checkpoints_of(run)).empty();
  }
  std::string branch_folder(size_t branch) const {
    const plan::TrialBranch& kept = plan_.tree.branches[branch];
    return fmt::format("{}/branches/{}-{}", options_.out_folder,
                       plan_.trials[planned(kept.run).trial].name, kept.step);
  }
  Status save() const { return write_sweep_record(options_.out_folder, record_); }

  // Whether the checkpoint is there; its files are checked when they are used.
  bool is_kept(size_t branch) const {
    return !formats::list_checkpoints(branch_folder(branch)).empty();
  }

  // Puts a run's folder where it begins, unless it has begun. A run whose steps diverged in
  // another one has ended.
  Status begin(size_t run) {
    if (!planned(run).from || has_begun(run)) return {};
    const size_t branch = *planned(run).from;
    const size_t source = plan_.tree.branches[branch].run;
    if (!is_kept(branch) && state_of(source) == TrialState::kDiverged) {
      return end_diverged(run, fmt::format("in steps that it shares with {}: {}",
                                           record_of(source).name, record_of(source).error));
    }
    const Status started = start_trial(
        {.branch = branch_folder(branch), .log = options_of(source).out_folder + "/log.jsonl"},
        options_of(run));
    const bool damaged = !started && (started.error().code == Code::kNotFound ||
                                      started.error().code == Code::kCorrupt);
    if (!damaged) return started;
    log_warn("{}: cannot begin behind step {} of {} and begins anew: {}", record_of(run).name,
             planned(run).begin, record_of(source).name, started.error().message);
    return {};
  }

  Status give_up_branches(size_t run) {
    for (size_t branch = 0; branch < plan_.tree.branches.size(); ++branch) {
      if (plan_.tree.branches[branch].last_run == run) {
        JIGE_DO(remove_if_there(branch_folder(branch)));
      }
    }
    return {};
  }

  // Keeps the checkpoints of this run that others begin from and that are not kept yet.
  Status keep_branches(size_t run) const {
    const std::string folder = checkpoints_of(run);
    for (const formats::CheckpointName& name : formats::list_checkpoints(folder)) {
      for (const size_t branch : planned(run).branches) {
        if (plan_.tree.branches[branch].step != name.step || is_kept(branch)) continue;
        JIGE_TRY(const auto reader, formats::CheckpointReader::open(folder + "/" + name.folder));
        JIGE_DO(formats::link_checkpoint(reader, branch_folder(branch), reader.state()));
      }
    }
    return {};
  }

  // Steps of runs that wait, and those that are done: what their time says of the rest.
  double seconds_left(size_t run, int64_t done) {
    if (steps_timed_ == 0) return 0;
    int64_t steps = -done;
    for (size_t r = run; r < plan_.tree.runs.size(); ++r) {
      if (state_of(r) == TrialState::kWaiting) steps += record_of(r).steps - planned(r).begin;
    }
    return static_cast<double>(steps) * seconds_timed_ / static_cast<double>(steps_timed_);
  }

  Status run_trial(size_t run) {
    TrainOptions options = options_of(run);
    options.resume = ResumeMode::kAuto;
    for (const size_t branch : planned(run).branches) {
      options.checkpoint_steps.push_back(plan_.tree.branches[branch].step);
    }
    // One that a killed sweep did not come to keep.
    if (Status kept = keep_branches(run); !kept && kept.error().code != Code::kCorrupt) return kept;
    const auto names = formats::list_checkpoints(checkpoints_of(run));
    const int64_t done = names.empty() ? 0 : names.front().step;
    TrainCallbacks callbacks = callbacks_.on_trial(
        {.number = run + 1,
         .trial = planned(run).trial,
         .steps_done = done,
         .seconds_left = seconds_left(run, std::max<int64_t>(done - planned(run).begin, 0))});
    Status kept;
    callbacks.on_checkpoint = [&, then = callbacks.on_checkpoint](const CheckpointInfo& info) {
      if (then) then(info);
      if (kept) kept = keep_branches(run);
    };
    callbacks.should_stop = [&kept, then = callbacks.should_stop] {
      return !kept || (then && then());
    };
    callbacks.on_step = [this, then = callbacks.on_step](const StepInfo& info) {
      ++steps_timed_;
      seconds_timed_ += info.seconds;
      if (then) then(info);
    };
    JIGE_TRY(const auto trainer, Trainer::create(options, std::move(callbacks)));
    const Result<TrainResult> result = trainer->run();
    JIGE_DO(kept);
    if (!result && trainer->has_diverged() && result.error().code == Code::kInvalidArgument) {
      return end_diverged(run, result.error().message);
    }
    if (!result) return tl::unexpected(result.error());
    if (callbacks_.on_result) callbacks_.on_result(*result);
    if (result->stopped) {
      return fail(Code::kCancelled,
                  "stopped behind step {} of {}, with a checkpoint; the same command goes on from "
                  "there",
                  result->steps_done, result->steps_total);
    }
    TrialRecord& record = record_of(run);
    JIGE_DO(read_losses(result->log_path, record));
    return end_trial(run, TrialState::kDone);
  }

  Status end_diverged(size_t run, std::string error) {
    log_warn("{}: {}", record_of(run).name, error);
    record_of(run).error = std::move(error);
    return end_trial(run, TrialState::kDiverged);
  }

  Status end_trial(size_t run, TrialState state) {
    record_of(run).state = state;
    JIGE_DO(save());
    if (callbacks_.on_ended) callbacks_.on_ended(record_of(run));
    return {};
  }

  // Removes what is not to be kept of trials that have ended.
  Status tidy(size_t run) {
    if (options_.keep == SweepKeep::kAll) return {};
    JIGE_DO(remove_if_there(checkpoints_of(run)));
    const auto best = best_trial(record_);
    if (options_.keep != SweepKeep::kBest || !best) return {};
    for (size_t trial = 0; trial < plan_.trials.size(); ++trial) {
      if (trial == *best || record_.trials[trial].state != TrialState::kDone) continue;
      const std::string& folder = plan_.trials[trial].options.out_folder;
      JIGE_DO(remove_if_there(folder + "/model"));
      JIGE_DO(remove_if_there(folder + "/adapter"));
    }
    return {};
  }

  const SweepPlan& plan_;
  const SweepOptions& options_;
  const SweepCallbacks& callbacks_;
  SweepRecord record_;
  int64_t steps_timed_ = 0;
  double seconds_timed_ = 0;
};

}  // namespace

Result<SweepRecord> run_sweep(const SweepPlan& plan, const SweepOptions& options,
                              const SweepCallbacks& callbacks) {
  JIGE_DO(make_folders(options.out_folder));
  SweepRecord record = new_record(plan, options);
  JIGE_TRY(std::optional<SweepRecord> saved, read_sweep_record(options.out_folder));
  if (saved && !same_trials(*saved, record)) {
    return fail(Code::kInvalidArgument,
                "{}/sweep.json: is of a sweep with other flags, other trials or other data; give "
                "the command that began it, or choose another folder",
                options.out_folder);
  }
  if (saved) record = std::move(*saved);
  return Sweep(plan, options, callbacks, std::move(record)).run();
}

}  // namespace jige::train
