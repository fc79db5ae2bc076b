// The running half of sweep.h.
#include "train/sweep.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <tuple>

#include "base/file.h"
#include "base/log.h"
#include "formats/checkpoint.h"
#include "formats/staged_folder.h"
#include "plan/trial_rungs.h"
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
  return one.flags == other.flags && one.halving_factor == other.halving_factor &&
         one.rungs == other.rungs &&
         std::ranges::equal(
             one.trials, other.trials, [](const TrialRecord& a, const TrialRecord& b) {
               return a.name == b.name && a.settings == b.settings && a.steps == b.steps &&
                      a.shared_steps == b.shared_steps && a.shared_with == b.shared_with;
             });
}

// The first trial of two records of the same sweep that reads other files.
const TrialRecord* first_with_other_inputs(const SweepRecord& saved, const SweepRecord& wanted) {
  for (size_t i = 0; i < wanted.trials.size(); ++i) {
    if (saved.trials[i].inputs != wanted.trials[i].inputs) return &wanted.trials[i];
  }
  return nullptr;
}

class Sweep {
 public:
  Sweep(const SweepPlan& plan, const SweepOptions& options, const SweepCallbacks& callbacks,
        SweepRecord record)
      : plan_(plan),
        options_(options),
        callbacks_(callbacks),
        record_(std::move(record)),
        tree_(plan.tree) {}

  Result<SweepRecord> run() {
    JIGE_DO(make_folders(options_.out_folder + "/trials"));
    JIGE_DO(save());
    for (rung_ = 0; rung_ <= plan_.rungs.size(); ++rung_) {
      if (rung_ > 0) tree_ = plan_runs(plan_, members(), until());
      JIGE_DO(run_trials());
      if (rung_ < plan_.rungs.size()) JIGE_DO(compare_trials());
    }
    JIGE_DO(remove_if_there(options_.out_folder + "/branches"));
    return std::move(record_);
  }

 private:
  // To where trials run: the next rung or their end.
  int64_t until() const { return rung_ < plan_.rungs.size() ? plan_.rungs[rung_] : INT64_MAX; }

  // The trials that came to the rung before and went on, whatever has become of them since.
  std::vector<size_t> members() const {
    std::vector<size_t> found;
    for (size_t trial = 0; trial < record_.trials.size(); ++trial) {
      const TrialRecord& record = record_.trials[trial];
      const size_t compared = record.rung_losses.size();
      const bool dropped = record.state == TrialState::kDropped && compared == rung_;
      if (compared >= rung_ && !dropped) found.push_back(trial);
    }
    return found;
  }

  Status run_trials() {
    for (size_t r = 0; r < tree_.runs.size(); ++r) {
      if (waits(r)) JIGE_DO(begin(r));
      JIGE_DO(give_up_branches(r));
      if (waits(r)) {
        Status ran = run_trial(r);
        if (!ran) {
          const std::string& name = record_of(r).name;
          return with_context(std::move(ran.error()), "trial {}", name);
        }
      }
      JIGE_DO(tidy(planned(r).trial));
    }
    return {};
  }

  // Drops all but the best part of the trials that are at the rung, unless that was done before.
  Status compare_trials() {
    RungResult result{.step = until()};
    std::vector<double> losses;
    for (size_t trial = 0; trial < record_.trials.size(); ++trial) {
      const TrialRecord& record = record_.trials[trial];
      if (record.rung_losses.size() <= rung_) continue;
      if (record.state == TrialState::kDropped && record.rung_losses.size() == rung_ + 1) {
        return drop_trials();
      }
      result.compared.push_back(trial);
      losses.push_back(record.rung_losses[rung_]);
    }
    if (result.compared.size() < 2) return {};
    std::vector<bool> goes_on(losses.size());
    for (const size_t place : plan::trials_going_on(losses, plan_.halving.factor)) {
      goes_on[place] = true;
      ++result.going_on;
    }
    for (size_t place = 0; place < losses.size(); ++place) {
      if (!goes_on[place]) record_.trials[result.compared[place]].state = TrialState::kDropped;
    }
    JIGE_DO(save());
    JIGE_DO(drop_trials());
    if (!callbacks_.on_rung) return {};
    std::ranges::stable_sort(result.compared, {}, [&](size_t trial) {
      const TrialRecord& record = record_.trials[trial];
      const double loss = record.rung_losses[rung_];
      return std::tuple(record.state == TrialState::kDropped, std::isnan(loss), loss);
    });
    callbacks_.on_rung(result, record_);
    return {};
  }

  Status drop_trials() const {
    for (size_t trial = 0; trial < record_.trials.size(); ++trial) {
      if (record_.trials[trial].state == TrialState::kDropped) JIGE_DO(tidy(trial));
    }
    return {};
  }

  const plan::TrialRun& planned(size_t run) const { return tree_.runs[run]; }
  const TrainOptions& options_of(size_t run) const {
    return plan_.trials[planned(run).trial].options;
  }
  TrialRecord& record_of(size_t run) { return record_.trials[planned(run).trial]; }
  TrialState state_of(size_t run) { return record_of(run).state; }
  // Whether it has not come to the next rung or its end.
  bool waits(size_t run) {
    const TrialRecord& record = record_of(run);
    return record.state == TrialState::kWaiting && record.rung_losses.size() == rung_;
  }
  int64_t end_of(size_t run) { return std::min(record_of(run).steps, until()); }
  std::string checkpoints_of(size_t run) const {
    return options_of(run).out_folder + "/checkpoints";
  }
  // That its last checkpoint is behind.
  int64_t steps_done(size_t run) const {
    const auto names = formats::list_checkpoints(checkpoints_of(run));
    return names.empty() ? 0 : names.front().step;
  }
  std::string branch_folder(size_t branch) const {
    const plan::TrialBranch& kept = tree_.branches[branch];
    return fmt::format("{}/branches/{}-{}", options_.out_folder,
                       plan_.trials[planned(kept.run).trial].name, kept.step);
  }
  Status save() const { return write_sweep_record(options_.out_folder, record_); }

  // Whether the checkpoint is there; its files are checked when they are used.
  bool is_kept(size_t branch) const {
    return !formats::list_checkpoints(branch_folder(branch)).empty();
  }

  // Puts a run's folder where it begins, unless it is there or behind it. A run whose steps
  // diverged in another one has ended.
  Status begin(size_t run) {
    if (!planned(run).from || steps_done(run) >= planned(run).begin) return {};
    const size_t branch = *planned(run).from;
    const size_t source = tree_.branches[branch].run;
    if (!is_kept(branch) && state_of(source) == TrialState::kDiverged) {
      return end_diverged(run, fmt::format("in steps that it shares with {}: {}",
                                           record_of(source).name, record_of(source).error));
    }
    if (is_kept(branch)) JIGE_DO(remove_if_there(checkpoints_of(run)));  // of the rung before
    const Status started = start_trial(
        {.branch = branch_folder(branch), .log = options_of(source).out_folder + "/log.jsonl"},
        options_of(run));
    const bool damaged = !started && (started.error().code == Code::kNotFound ||
                                      started.error().code == Code::kCorrupt);
    if (!damaged) return started;
    log_warn("{}: cannot begin behind step {} of {}, so it begins behind step {}: {}",
             record_of(run).name, planned(run).begin, record_of(source).name, steps_done(run),
             started.error().message);
    return {};
  }

  Status give_up_branches(size_t run) {
    for (size_t branch = 0; branch < tree_.branches.size(); ++branch) {
      if (tree_.branches[branch].last_run == run) {
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
        if (tree_.branches[branch].step != name.step || is_kept(branch)) continue;
        JIGE_TRY(const auto reader, formats::CheckpointReader::open(folder + "/" + name.folder));
        JIGE_DO(formats::link_checkpoint(reader, branch_folder(branch), reader.state()));
      }
    }
    return {};
  }

  // Steps of runs that wait, and those that are done: what their time says of the rest.
  double seconds_left(size_t run, int64_t done) {
    if (steps_timed_ == 0) return 0;
    const int64_t began_behind = rung_ > 0 ? plan_.rungs[rung_ - 1] : 0;
    int64_t steps = end_of(run) - done;
    for (size_t r = run + 1; r < tree_.runs.size(); ++r) {
      if (waits(r)) steps += end_of(r) - std::max(planned(r).begin, began_behind);
    }
    for (size_t rung = rung_; rung < plan_.rungs.size(); ++rung) {
      steps += steps_behind_rung(plan_, rung);
    }
    return static_cast<double>(steps) * seconds_timed_ / static_cast<double>(steps_timed_);
  }

  Status run_trial(size_t run) {
    TrainOptions options = options_of(run);
    options.resume = ResumeMode::kAuto;
    for (const size_t branch : planned(run).branches) {
      options.checkpoint_steps.push_back(tree_.branches[branch].step);
    }
    // One that a killed sweep did not come to keep.
    if (Status kept = keep_branches(run); !kept && kept.error().code != Code::kCorrupt) return kept;
    const int64_t done = steps_done(run);
    const int64_t end = end_of(run);
    const bool pauses = end < record_of(run).steps;
    if (pauses && done >= end) return end_part(run);
    TrainCallbacks callbacks = callbacks_.on_trial({.number = run + 1,
                                                    .count = tree_.runs.size(),
                                                    .trial = planned(run).trial,
                                                    .steps_done = done,
                                                    .steps_until = end,
                                                    .seconds_left = seconds_left(run, done)});
    Status kept;
    callbacks.on_checkpoint = [&, then = callbacks.on_checkpoint](const CheckpointInfo& info) {
      if (then) then(info);
      if (kept) kept = keep_branches(run);
    };
    int64_t step = done;
    callbacks.should_stop = [&, then = callbacks.should_stop] {
      return !kept || step == end || (then && then());
    };
    // What trials are compared by is measured to its end.
    callbacks.on_held_out = [then = callbacks.on_held_out](int64_t inputs, int64_t total) {
      if (then) then(inputs, total);
      return true;
    };
    callbacks.on_step = [&, this, then = callbacks.on_step](const StepInfo& info) {
      step = info.step;
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
    if (pauses && result->steps_done == end) return end_part(run);
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

  // Notes what a trial that has come to a rung is compared by.
  Status end_part(size_t run) {
    TrialRecord& record = record_of(run);
    const std::string log = options_of(run).out_folder + "/log.jsonl";
    JIGE_DO(read_losses(log, record));
    if (record.held_out_step != until()) {
      return fail(Code::kCorrupt,
                  "{}: holds no measurement behind step {}, where trials are compared", log,
                  until());
    }
    record.rung_losses.push_back(record.held_out.value_or(NAN));
    return save();
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
  Status tidy(size_t trial) const {
    if (options_.keep == SweepKeep::kAll || record_.trials[trial].state == TrialState::kWaiting) {
      return {};
    }
    JIGE_DO(remove_if_there(plan_.trials[trial].options.out_folder + "/checkpoints"));
    const auto best = best_trial(record_);
    if (options_.keep != SweepKeep::kBest || !best) return {};
    for (size_t other = 0; other < plan_.trials.size(); ++other) {
      if (other == *best || record_.trials[other].state != TrialState::kDone) continue;
      const std::string& folder = plan_.trials[other].options.out_folder;
      JIGE_DO(remove_if_there(folder + "/model"));
      JIGE_DO(remove_if_there(folder + "/adapter"));
    }
    return {};
  }

  const SweepPlan& plan_;
  const SweepOptions& options_;
  const SweepCallbacks& callbacks_;
  SweepRecord record_;
  size_t rung_ = 0;       // the next one
  plan::TrialTree tree_;  // of runs up to it
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
                "{}/sweep.json: is of a sweep with other flags or other trials; give the command "
                "that began it, or choose another folder",
                options.out_folder);
  }
  if (const TrialRecord* other = saved ? first_with_other_inputs(*saved, record) : nullptr) {
    return fail(Code::kInvalidArgument,
                "{}/sweep.json: trial {} would read other data, another tokenizer or another model "
                "than those that the sweep began with; put the old files back, or choose another "
                "folder",
                options.out_folder, other->name);
  }
  if (saved) record = std::move(*saved);
  return Sweep(plan, options, callbacks, std::move(record)).run();
}

}  // namespace jige::train
