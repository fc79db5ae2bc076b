// A sweep: several trainings (trials) that differ in a few options, one after another, where what
// their first steps share is trained once.
//
//   JIGE_TRY(SweepPlan plan, plan_sweep(std::move(trials)));
//   JIGE_TRY(const SweepRecord record, run_sweep(plan, options, callbacks));
//
// Where trials are compared on their way (SweepHalving), all run to the first rung, the best part
// of them on to the next, and so on; the others are dropped, and their last step is that of the
// rung. What is run between two rungs is planned and shared as a sweep of its own.
//
// Which steps are shared follows from the options: all but schedule and length must agree, and the
// bits of the learning rates of those steps (plan/trial_tree.h). A trial that begins where another
// one has been starts with the checkpoint of that step and the records of its log, under its own
// identity. A run that goes on from a checkpoint ends with the bits of one that was never stopped
// (trainer.h), so every trial ends with the weights and the losses of the same run alone; one that
// is dropped has those of its steps.
//
// OUT/sweep.json           sweep_record.h
// OUT/trials/NAME          a run, as of Trainer; its checkpoints go when it has ended, unless all
//                          are kept
// OUT/branches/NAME-step   a checkpoint that other trials begin from, until the last one has begun
// OUT/cache                tokenised data of all trials
//
// A sweep that was killed or stopped goes on where it was: the trial under way as any run does, and
// what has ended is not run again. It goes on with the files that it began with: trials that read
// other data, or begin with other weights, say nothing beside one another. A trial that diverges
// ends alone, with those that share the step in which it did. Threads: one thread at a time;
// trainers have threads of their own.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"
#include "base/threads.h"
#include "plan/trial_tree.h"
#include "train/options.h"
#include "train/report.h"
#include "train/sweep_record.h"

namespace jige::train {

struct SweepTrial {
  std::string name;                                           // of its folder
  std::vector<std::pair<std::string, std::string>> settings;  // that tell it from others
  TrainOptions options;
  std::string inputs = {};  // checksum of what it reads, filled in by plan_sweep()
};

// What of a trial is kept when it has ended.
enum class SweepKeep {
  kBest,    // the model of the best trial so far
  kModels,  // every trial's model
  kAll,     // checkpoints as well
};

// Whether and where the best part of the trials goes on alone (plan/trial_rungs.h).
struct SweepHalving {
  int64_t factor = 0;      // one of so many goes on; 0: all run to their end
  int64_t first_step = 0;  // 0: where the rungs behind it leave one trial
};

struct SweepPlan {
  std::vector<SweepTrial> trials;  // with steps_total of their schedules, folders and files
  plan::TrialTree tree;            // to the first rung, or the end where there is none
  SweepHalving halving;
  std::vector<int64_t> rungs;  // steps
};

// The runs of some trials, by their places in the list, up to a step.
plan::TrialTree plan_runs(const SweepPlan& plan, std::span<const size_t> trials, int64_t until);

// Where a sweep is, as a trial begins or goes on.
struct SweepPlace {
  size_t number = 0;  // of the trial, from 1, in the order in which they run up to the next rung
  size_t count = 0;   // of trials that do
  size_t trial = 0;   // its place in the list
  int64_t steps_done = 0;
  int64_t steps_until = 0;  // the rung to which it goes, or its end
  double seconds_left = 0;  // of the whole sweep; 0: not known yet
};

// Trials have been compared behind a step.
struct RungResult {
  int64_t step = 0;
  std::vector<size_t> compared;  // places in the list, the best first
  size_t going_on = 0;           // so many of them
};

struct SweepCallbacks {
  std::function<TrainCallbacks(const SweepPlace&)> on_trial;
  std::function<void(const TrainResult&)> on_result;
  std::function<void(const TrialRecord&)> on_ended = {};
  std::function<void(const RungResult&, const SweepRecord&)> on_rung = {};
};

struct SweepOptions {
  std::string out_folder;
  std::vector<std::string> flags;  // for the record
  SweepKeep keep = SweepKeep::kModels;
};

// Where trial NAME of a sweep trains.
std::string trial_folder(const std::string& out_folder, const std::string& name);

// Fills in folders and inputs, counts the steps of every trial, for which data is read, and finds
// what they share. Fails with kInvalidArgument naming two trials that would be the same run, where
// trials are to be compared but nothing is measured there, and as prepare_run does, naming the
// trial. `on_prepared` hears how many trials are looked at. REQUIRES: the lock on OUT (run_lock.h)
// is held.
Result<SweepPlan> plan_sweep(std::vector<SweepTrial> trials, const std::string& out_folder,
                             const SweepHalving& halving, const TrainCallbacks& callbacks,
                             ThreadTeam& team, const WalkProgress& on_prepared = {});

// How many steps trials run between a rung, by its number, and the next at most.
int64_t steps_behind_rung(const SweepPlan& plan, size_t rung);

// The record of a sweep of which nothing has run.
SweepRecord new_record(const SweepPlan& plan, const SweepOptions& options);

// Runs what is left. Fails with kInvalidArgument where OUT holds another sweep, or the files that
// trials read are not those it began with, with kCancelled
// behind a checkpoint where the trial's should_stop says so, and as Trainer does, naming the trial,
// unless a trial diverges. REQUIRES: the lock on OUT (run_lock.h) is held.
Result<SweepRecord> run_sweep(const SweepPlan& plan, const SweepOptions& options,
                              const SweepCallbacks& callbacks);

}  // namespace jige::train
