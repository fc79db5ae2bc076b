// Sweeps of which the best trials alone go on.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <map>

#include "base/rng.h"
#include "base/test_fuzz_rounds.h"
#include "base/test_mutator.h"
#include "train/sweep_test_support.h"

namespace jige::train {
namespace {

using ::testing::HasSubstr;

// Five trials of 12 steps; two share their first nine.
std::vector<SweepTrial> many_trials(const Study& study) {
  return {study.trial("late", 3e-3, 0.25), study.trial("slow", 1e-5, 0.25),
          study.trial("latest", 3e-3, 0.1), study.trial("other", 1e-3, 0.25),
          study.trial("slowest", 1e-6, 0.25)};
}

// The held-out loss behind a step, by the log.
double held_out_at(const TrainOptions& options, int64_t step) {
  for (const std::string& line : logged(options)) {
    const Json record = *parse_json(line, "log");
    if (record["kind"] == "eval" && record["step"] == step) return record["loss"];
  }
  ADD_FAILURE() << options.out_folder << " measured nothing behind step " << step;
  return 0;
}

// What trials that are all run alone would have made of the rungs: where each was dropped, 0: none.
std::vector<int64_t> dropped_at(const std::vector<TrainOptions>& alone, const SweepPlan& plan) {
  std::vector<int64_t> found(alone.size());
  for (const int64_t rung : plan.rungs) {
    std::vector<std::pair<double, size_t>> order;
    for (size_t i = 0; i < alone.size(); ++i) {
      if (found[i] == 0) order.emplace_back(held_out_at(alone[i], rung), i);
    }
    std::ranges::sort(order);
    const auto kept =
        static_cast<size_t>((std::ssize(order) + plan.halving.factor - 1) / plan.halving.factor);
    for (size_t place = kept; place < order.size(); ++place) found[order[place].second] = rung;
  }
  return found;
}

void expect_halved(const Study& study, const SweepPlan& plan, const SweepRecord& record) {
  std::vector<TrainOptions> alone;
  for (const SweepTrial& trial : plan.trials) alone.push_back(run_alone(study, trial));
  const std::vector<int64_t> dropped = dropped_at(alone, plan);
  for (size_t i = 0; i < alone.size(); ++i) {
    SCOPED_TRACE(plan.trials[i].name);
    const TrainOptions& options = plan.trials[i].options;
    const auto lines = logged(options);
    auto expected = logged(alone[i]);
    const auto behind = [&](const std::string& line) {
      return dropped[i] > 0 && (*parse_json(line, "log"))["step"] > dropped[i];
    };
    std::erase_if(expected, behind);
    EXPECT_EQ(lines, expected);
    const bool done = dropped[i] == 0;
    EXPECT_EQ(record.trials[i].state, done ? TrialState::kDone : TrialState::kDropped);
    EXPECT_EQ(std::filesystem::exists(options.out_folder + "/model"), done);
    EXPECT_FALSE(std::filesystem::exists(options.out_folder + "/checkpoints"));
    if (!done) continue;
    EXPECT_TRUE(model_bytes(options) == model_bytes(alone[i]));
  }
}

TEST(Sweep, GoesOnWithTheBestAlone) {
  const Study study;
  const auto plan = study.plan(many_trials(study), {.factor = 2});
  ASSERT_TRUE(plan) << plan.error().message;
  EXPECT_EQ(plan->rungs, (std::vector<int64_t>{3, 6}));
  int64_t steps = 0;
  const TrainCallbacks callbacks = {.on_step = [&](const StepInfo&) { ++steps; }};
  std::vector<std::pair<int64_t, size_t>> compared;
  const auto record = run_sweep(*plan, {.out_folder = study.out()},
                                {.on_trial = [&](const SweepPlace&) { return callbacks; },
                                 .on_result = {},
                                 .on_rung =
                                     [&](const RungResult& rung, const SweepRecord&) {
                                       compared.emplace_back(rung.compared.size(), rung.going_on);
                                     }});
  ASSERT_TRUE(record) << record.error().message;
  EXPECT_EQ(compared, (std::vector<std::pair<int64_t, size_t>>{{5, 3}, {3, 2}}));
  expect_halved(study, *plan, *record);
  // 3 steps of five, two of which are shared, 3 of three and 6 of two.
  EXPECT_LE(steps, record->steps_run);
  EXPECT_EQ(record->steps_run, 5 * 3 - 2 + 3 * 3 + 2 * 6);
  const auto again = run_all(*plan, {.out_folder = study.out()}, callbacks);
  ASSERT_TRUE(again) << again.error().message;
  EXPECT_EQ(again->to_json(), record->to_json());
  EXPECT_LE(steps, record->steps_run);
}

// The record alone says how far trials are; their folders may say something else.
TEST(Sweep, DamagedRecordsAreRefusedOrGoneOnWith) {
  const Study study;
  const auto plan = study.plan(many_trials(study), {.factor = 2});
  ASSERT_TRUE(plan) << plan.error().message;
  ASSERT_TRUE(run_all(*plan, {.out_folder = study.out()}));
  const std::string path = study.out() + "/sweep.json";
  const Json whole = *parse_json(bytes_of(path), "sweep.json");
  Rng rng(derive_key(5, "damaged sweeps"));
  int gone_on = 0;
  for (uint64_t round = 0; round < fuzz_rounds(12); ++round) {
    Json damaged = whole;
    for (uint64_t i = 1 + rng.below(3); i > 0; --i) {
      Json& trial = damaged["trials"][rng.below(damaged["trials"].size())];
      static constexpr const char* kStates[] = {"waiting", "done", "dropped", "diverged"};
      if (rng.below(2) == 0) {
        trial["state"] = kStates[rng.below(std::size(kStates))];
      } else {
        trial["rung_losses"] = std::vector<double>(rng.below(3), rng.uniform());
      }
    }
    const std::string text = dump_json(damaged);
    ASSERT_TRUE(write_file_atomic(path, round % 4 == 0 ? Mutator(round).mutate(text) : text));
    const auto record = run_all(*plan, {.out_folder = study.out()});
    gone_on += record.has_value();
    ASSERT_TRUE(record || !record.error().message.empty()) << round;
    ASSERT_TRUE(!record || record->trials.size() == plan->trials.size()) << round;
  }
  EXPECT_GT(gone_on, 3);
}

TEST(Sweep, GoesOnWithTheSameTrialsWhereverItWasKilled) {
  Study study;
  study.base.checkpoint_every_steps = 2;
  const auto plan = study.plan(many_trials(study), {.factor = 2});
  ASSERT_TRUE(plan) << plan.error().message;
  Rng rng(derive_key(20281129, "kills of a sweep"));
  int killed = 0;
  for (;; ++killed) {
    ASSERT_LT(killed, 400) << "it does not come to an end";
    // Killed behind one of its own calls, so that no speed of a machine decides where.
    int64_t left = 1 + static_cast<int64_t>(rng.below(killed % 2 == 0 ? 4 : 9));
    const pid_t child = fork();
    if (child == 0) {
      const auto count = [&left] {
        if (--left == 0) kill(getpid(), SIGKILL);
      };
      const TrainCallbacks callbacks = {.on_step = [&](const StepInfo&) { count(); },
                                        .on_checkpoint = [&](const CheckpointInfo&) { count(); }};
      const auto record =
          run_sweep(*plan, {.out_folder = study.out()},
                    {.on_trial = [&](const SweepPlace&) { return callbacks; },
                     .on_result = [&](const TrainResult&) { count(); },
                     .on_rung = [&](const RungResult&, const SweepRecord&) { count(); }});
      if (!record) fprintf(stderr, "%s\n", record.error().message.c_str());
      _exit(record ? 0 : 1);
    }
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    if (!WIFEXITED(status)) continue;
    ASSERT_EQ(WEXITSTATUS(status), 0);
    break;
  }
  EXPECT_GT(killed, 5);
  const auto record = run_all(*plan, {.out_folder = study.out()});
  ASSERT_TRUE(record) << record.error().message;
  expect_halved(study, *plan, *record);
}

// A signal that comes while trials are measured does not leave what they are compared by.
TEST(Sweep, MeasuresWhereTrialsAreComparedToTheEnd) {
  Study study;
  study.base.eval_every_steps = 3;
  const auto plan = study.plan(many_trials(study), {.factor = 3});
  ASSERT_TRUE(plan) << plan.error().message;
  int64_t asked = 0;
  const auto record = run_all(*plan, {.out_folder = study.out()},
                              {.on_held_out = [&](int64_t, int64_t) { return ++asked < 0; }});
  ASSERT_TRUE(record) << record.error().message;
  EXPECT_GT(asked, 0);
  EXPECT_TRUE(best_trial(*record));
}

// A trial that shares steps behind the rung begins where the other one has been; and one whose rate
// is far too high takes no other's place.
TEST(Sweep, SharesStepsBehindARungToo) {
  const Study study;
  auto trials = many_trials(study);
  trials[1] = study.trial("wild", 1e30, 0.25);
  const auto plan = study.plan(std::move(trials), {.factor = 2, .first_step = 6});
  ASSERT_TRUE(plan) << plan.error().message;
  EXPECT_EQ(plan->rungs, (std::vector<int64_t>{6}));
  std::map<size_t, int64_t> steps;
  const auto record =
      run_sweep(*plan, {.out_folder = study.out()},
                {.on_trial =
                     [&](const SweepPlace& place) {
                       return TrainCallbacks{
                           .on_step = [&, place](const StepInfo&) { ++steps[place.trial]; }};
                     },
                 .on_result = {}});
  ASSERT_TRUE(record) << record.error().message;
  EXPECT_EQ(record->trials[1].state, TrialState::kDropped);
  EXPECT_EQ(record->trials[0].state, TrialState::kDone);
  EXPECT_EQ(record->trials[2].state, TrialState::kDone);
  EXPECT_EQ(steps[0] + steps[2], 6 + 1 + 6 + 3);
  for (const size_t trial : {0, 2}) {
    const TrainOptions alone = run_alone(study, plan->trials[trial]);
    EXPECT_EQ(logged(plan->trials[trial].options), logged(alone));
    EXPECT_TRUE(model_bytes(plan->trials[trial].options) == model_bytes(alone));
  }
}

TEST(Sweep, SaysWhyTrialsCannotBeCompared) {
  Study study;
  const auto refusal = [&](const SweepHalving& halving) {
    const auto plan = study.plan(many_trials(study), halving);
    return plan ? std::string() : plan.error().message;
  };
  EXPECT_EQ(refusal({.factor = 2}), "");
  EXPECT_EQ(refusal({.factor = 1}), "--halving 1: one of 2 to 1000 trials can go on");
  EXPECT_THAT(refusal({.factor = 2, .first_step = 4}),
              HasSubstr("--first-rung 4: is no multiple of the 3 steps of --eval-every"));
  EXPECT_THAT(refusal({.factor = 2, .first_step = 12}), HasSubstr("or --first-rung"));
  study.base.eval_every_steps = 12;
  EXPECT_THAT(refusal({.factor = 2}), HasSubstr("choose a smaller --eval-every"));
  study.base.eval_every_steps = 0;
  EXPECT_THAT(refusal({.factor = 2}), HasSubstr("trial late: --halving compares trials by"));
  study.base.eval_every_steps = 3;
  study.base.data.eval_fraction = 0;
  EXPECT_THAT(refusal({.factor = 2}), HasSubstr("give --eval-every and held-out data"));
}

}  // namespace
}  // namespace jige::train
