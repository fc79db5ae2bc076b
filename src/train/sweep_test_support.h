// What tests of sweeps share: a corpus with trials on it, and the same runs alone.
//
// Included by tests only. Threads: values.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "tensor/cpu_device.h"
#include "train/preference_run_test_support.h"
#include "train/sweep.h"
#include "train/trainer_test_support.h"

namespace jige::train {

// A corpus and options that trials vary.
struct Study {
  TestFolder folder;
  TrainOptions base;

  explicit Study(DType compute = DType::kF32) {
    folder.write("a.jsonl", small_corpus(30));
    base = tiny_options(folder, {folder.file("a.jsonl")});
    base.compute = compute;
    base.micro_batch_tokens = 32;
    base.step_tokens = 64;
    base.steps = 12;
    base.data.eval_fraction = 0.1;
    base.eval_every_steps = 3;
    base.schedule.kind = ScheduleKind::kWsd;
    base.schedule.warmup_steps = 2;
  }

  SweepTrial trial(const std::string& name, double rate, double decay_share) const {
    SweepTrial made{.name = name, .settings = {{"name", name}}, .options = base};
    made.options.schedule.peak = rate;
    made.options.schedule.decay_share = decay_share;
    return made;
  }
  // Two rates; of one, three that part behind steps 3 and 9.
  std::vector<SweepTrial> trials() const {
    return {trial("late", 3e-3, 0.25), trial("early", 3e-3, 0.75), trial("other", 1e-3, 0.25),
            trial("latest", 3e-3, 0.1)};
  }
  std::string out() const { return folder.file("sweep"); }
  Result<SweepPlan> plan(std::vector<SweepTrial> trials, const SweepHalving& halving = {}) const {
    CpuDevice device({.thread_count = 1});
    return plan_sweep(std::move(trials), out(), halving, {}, device.team());
  }
};

inline Result<SweepRecord> run_all(const SweepPlan& plan, const SweepOptions& options,
                                   TrainCallbacks callbacks = {}) {
  return run_sweep(
      plan, options,
      {.on_trial = [&](const SweepPlace&) { return callbacks; }, .on_result = {}, .on_ended = {}});
}

// What a log says of losses, without what depends on the clock.
inline std::vector<std::string> logged(const TrainOptions& options) {
  std::vector<std::string> lines;
  const std::string text = bytes_of(options.out_folder + "/log.jsonl");
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = text.find('\n', begin);
    Json record = *parse_json(text.substr(begin, end - begin), "log");
    begin = end + 1;
    if (record["kind"] != "step" && record["kind"] != "eval") continue;
    for (const char* of_clock :
         {"seconds", "run_seconds", "tokens_per_s", "flops_per_s", "flops_share"}) {
      record.erase(of_clock);
    }
    lines.push_back(dump_json(record));
  }
  return lines;
}

// The same run alone, in another folder.
inline TrainOptions run_alone(const Study& study, const SweepTrial& trial) {
  TrainOptions options = trial.options;
  options.out_folder = study.folder.file("alone-" + trial.name);
  options.data.cache_folder.clear();
  const auto run = train(options);
  EXPECT_TRUE(run) << run.error().message;
  return options;
}

inline void expect_bits_of_runs_alone(const Study& study, const SweepPlan& plan) {
  for (const SweepTrial& trial : plan.trials) {
    SCOPED_TRACE(trial.name);
    const TrainOptions alone = run_alone(study, trial);
    EXPECT_EQ(logged(trial.options), logged(alone));
    EXPECT_EQ(logged(alone).size(), 12u + 4u);
    EXPECT_TRUE(model_bytes(trial.options) == model_bytes(alone));
  }
}

}  // namespace jige::train
