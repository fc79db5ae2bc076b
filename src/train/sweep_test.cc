// Trials of a sweep end with the bits of the same runs alone, also where the sweep is killed.

#include "train/sweep.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <map>

#include "base/clock.h"
#include "base/rng.h"
#include "formats/checkpoint.h"
#include "train/sweep_test_support.h"

namespace jige::train {
namespace {

using ::testing::HasSubstr;

TEST(Sweep, EndsWithTheBitsOfRunsAlone) {
  for (const DType compute : {DType::kF32, DType::kBF16}) {
    Study study(compute);
    if (compute == DType::kBF16) {
      study.base.dropout = 0.1;
      study.base.optimizer.moments = ops::MomentFormat::kQ8;
    }
    const auto plan = study.plan(study.trials());
    ASSERT_TRUE(plan) << plan.error().message;
    EXPECT_EQ(plan->tree.steps_all, 48);
    EXPECT_EQ(plan->tree.steps_run, 24 + 12);
    EXPECT_EQ(plan->tree.branches_at_once, 1);
    int64_t steps = 0;
    const auto record =
        run_all(*plan, {.out_folder = study.out()}, {.on_step = [&](const StepInfo&) { ++steps; }});
    ASSERT_TRUE(record) << record.error().message;
    EXPECT_EQ(steps, plan->tree.steps_run);
    expect_bits_of_runs_alone(study, *plan);
    EXPECT_FALSE(std::filesystem::exists(study.out() + "/branches"));
    for (const TrialRecord& trial : record->trials) {
      EXPECT_EQ(trial.state, TrialState::kDone);
      EXPECT_TRUE(trial.loss && trial.held_out && trial.held_out_best);
      EXPECT_FALSE(std::filesystem::exists(study.out() + "/" + trial.folder() + "/checkpoints"));
    }
    // Nothing is run again.
    const auto again =
        run_all(*plan, {.out_folder = study.out()}, {.on_step = [&](const StepInfo&) { ++steps; }});
    ASSERT_TRUE(again) << again.error().message;
    EXPECT_EQ(again->to_json(), record->to_json());
    EXPECT_EQ(steps, plan->tree.steps_run);
  }
}

// When a subnetwork has its turn depends on how many steps there are.
TEST(Sweep, RunsOfAPoolOfSubnetworksShareStepsOfTheSameLengthAlone) {
  for (const bool pool : {false, true}) {
    Study study;
    study.base.dropout = 0.2;
    if (pool) study.base.dropout_pool = 8;
    study.base.schedule.kind = ScheduleKind::kConstant;
    SweepTrial longer = study.trial("longer", 3e-3, 0.25);
    SweepTrial shorter = longer;
    shorter.name = "shorter";
    shorter.options.steps = 8;
    const auto plan = study.plan({longer, shorter});
    ASSERT_TRUE(plan) << plan.error().message;
    EXPECT_EQ(plan->tree.steps_run, pool ? 20 : 13);
  }
}

TEST(Sweep, EndsWithTheBitsOfRunsAloneOfAdaptersThatLearnFromPairs) {
  Study study;
  first_model(study.folder);
  study.base = preference_options(study.folder, "unused");
  study.base.lora = formats::LoraConfig{.rank = 2, .alpha = 4};
  study.base.steps = 12;
  study.base.data.eval_fraction = 0.1;
  study.base.eval_every_steps = 3;
  study.base.schedule.kind = ScheduleKind::kWsd;
  const auto plan = study.plan({study.trial("late", 3e-3, 0.25), study.trial("early", 3e-3, 0.75)});
  ASSERT_TRUE(plan) << plan.error().message;
  EXPECT_EQ(plan->tree.steps_run, 24 - 3);
  const auto record = run_all(*plan, {.out_folder = study.out()});
  ASSERT_TRUE(record) << record.error().message;
  expect_bits_of_runs_alone(study, *plan);
}

// The start of one trial's run in another's folder would be told by its identity; so would a rate
// that differs within what is said to be shared.
TEST(Sweep, RefusesACheckpointThatIsNotOfTheTrial) {
  const Study study;
  auto plan = study.plan(study.trials());
  ASSERT_TRUE(plan);
  for (plan::TrialRun& run : plan->tree.runs) {
    if (!run.from) continue;
    plan->trials[run.trial].options.seed = 77;
    break;
  }
  const auto record = run_all(*plan, {.out_folder = study.out()});
  ASSERT_FALSE(record);
  EXPECT_THAT(record.error().message, HasSubstr("seed"));
}

TEST(Sweep, GoesOnWhereItWasKilled) {
  const Study study;
  auto trials = study.trials();
  for (SweepTrial& trial : trials) trial.options.checkpoint_every_steps = 2;
  const auto plan = study.plan(std::move(trials));
  ASSERT_TRUE(plan);
  Rng rng(derive_key(20281128, "kills of a sweep"));
  int killed = 0;
  for (int round = 0;; ++round) {
    ASSERT_LT(round, 400) << "it does not come to an end";
    const pid_t child = fork();
    if (child == 0) {
      const auto record = run_all(*plan, {.out_folder = study.out()});
      if (!record) fprintf(stderr, "%s\n", record.error().message.c_str());
      _exit(record ? 0 : 1);
    }
    // Later and later, so that a slow build comes to an end, too.
    const double kill_after_s = 0.002 + (0.02 + 0.002 * round) * rng.uniform();
    const StopWatch watch;
    int status = 0;
    while (waitpid(child, &status, WNOHANG) == 0) {
      if (watch.seconds() >= kill_after_s) kill(child, SIGKILL);
      usleep(200);
    }
    if (WIFEXITED(status)) {
      ASSERT_EQ(WEXITSTATUS(status), 0);
      break;
    }
    ++killed;
  }
  EXPECT_GT(killed, 2);
  expect_bits_of_runs_alone(study, *plan);
  EXPECT_FALSE(std::filesystem::exists(study.out() + "/branches"));
}

TEST(Sweep, StopsBehindACheckpointAndGoesOn) {
  const Study study;
  const auto plan = study.plan(study.trials());
  ASSERT_TRUE(plan);
  int64_t steps = 0;
  for (int stops = 0;; ++stops) {
    ASSERT_LT(stops, 100);
    int64_t here = 0;
    const auto record = run_all(
        *plan, {.out_folder = study.out()},
        {.on_step = [&](const StepInfo&) { ++here; }, .should_stop = [&] { return here > 4; }});
    steps += here;
    if (record) break;
    ASSERT_EQ(record.error().code, Code::kCancelled) << record.error().message;
  }
  EXPECT_EQ(steps, plan->tree.steps_run) << "no step is run twice";
  expect_bits_of_runs_alone(study, *plan);
}

// A kill between a checkpoint and what keeps it for others.
TEST(Sweep, KeepsABranchThatAKilledSweepDidNotComeTo) {
  Study study;
  study.base.checkpoints_kept = 1;
  const auto plan = study.plan(study.trials());
  ASSERT_TRUE(plan);
  int64_t steps = 0, last = 0;
  const TrainCallbacks callbacks = {.on_step =
                                        [&](const StepInfo& info) {
                                          ++steps;
                                          last = info.step;
                                        },
                                    .should_stop = [&] { return steps == 3 && last == 3; }};
  const auto stopped = run_all(*plan, {.out_folder = study.out()}, callbacks);
  ASSERT_FALSE(stopped);
  EXPECT_EQ(stopped.error().code, Code::kCancelled);
  EXPECT_GT(std::filesystem::remove_all(study.out() + "/branches"), 0u);
  const auto record = run_all(*plan, {.out_folder = study.out()}, callbacks);
  ASSERT_TRUE(record) << record.error().message;
  EXPECT_EQ(steps, plan->tree.steps_run);
}

TEST(Sweep, BeginsAnewWhereABranchIsDamaged) {
  const Study study;
  const auto plan = study.plan(study.trials());
  ASSERT_TRUE(plan);
  int64_t steps = 0;
  const std::string branches = study.out() + "/branches";
  const auto record =
      run_all(*plan, {.out_folder = study.out()}, {.on_step = [&](const StepInfo& info) {
        ++steps;
        if (info.step != 12) return;
        std::error_code error;
        for (const auto& file : std::filesystem::recursive_directory_iterator(branches, error)) {
          if (file.path().filename() != "state.json") continue;
          std::filesystem::resize_file(file.path(), 10);
        }
      }});
  ASSERT_TRUE(record) << record.error().message;
  EXPECT_EQ(steps, plan->tree.steps_all);
  expect_bits_of_runs_alone(study, *plan);
}

TEST(Sweep, GoesOnWithoutTrialsThatDiverge) {
  const Study study;
  const auto plan = study.plan({study.trial("wild", 1e30, 0.25), study.trial("wilder", 1e30, 0.1),
                                study.trial("tame", 1e-3, 0.25)});
  ASSERT_TRUE(plan);
  EXPECT_LT(plan->tree.steps_run, plan->tree.steps_all);
  const auto record = run_all(*plan, {.out_folder = study.out()});
  ASSERT_TRUE(record) << record.error().message;
  std::map<std::string, const TrialRecord*> by_name;
  for (const TrialRecord& trial : record->trials) by_name[trial.name] = &trial;
  EXPECT_EQ(by_name["tame"]->state, TrialState::kDone);
  EXPECT_EQ(by_name["wild"]->state, TrialState::kDiverged);
  EXPECT_EQ(by_name["wilder"]->state, TrialState::kDiverged);
  EXPECT_THAT(by_name["wild"]->error + by_name["wilder"]->error,
              HasSubstr("in steps that it shares with"));
  EXPECT_THAT(by_name["wild"]->error, HasSubstr("training diverged"));
  EXPECT_EQ(record->trials[*best_trial(*record)].name, "tame");
}

TEST(Sweep, KeepsWhatItIsAskedTo) {
  const Study study;
  for (const SweepKeep keep : {SweepKeep::kAll, SweepKeep::kBest}) {
    std::filesystem::remove_all(study.out());
    const auto plan = study.plan(study.trials());
    ASSERT_TRUE(plan);
    const auto record = run_all(*plan, {.out_folder = study.out(), .keep = keep});
    ASSERT_TRUE(record) << record.error().message;
    for (size_t i = 0; i < plan->trials.size(); ++i) {
      const std::string& out = plan->trials[i].options.out_folder;
      const bool all = keep == SweepKeep::kAll;
      EXPECT_EQ(formats::list_checkpoints(out + "/checkpoints").empty(), !all);
      EXPECT_EQ(std::filesystem::exists(out + "/model"), all || best_trial(*record) == i);
      EXPECT_TRUE(std::filesystem::exists(out + "/log.jsonl"));
    }
  }
}

TEST(Sweep, RefusesTheFolderOfAnother) {
  const Study study;
  const auto plan = study.plan({study.trial("one", 1e-3, 0.25)});
  ASSERT_TRUE(run_all(*plan, {.out_folder = study.out()}));
  const auto other = study.plan({study.trial("two", 2e-3, 0.25)});
  const auto record = run_all(*other, {.out_folder = study.out()});
  ASSERT_FALSE(record);
  EXPECT_THAT(record.error().message, HasSubstr("is of a sweep with other flags"));
}

// A file that was written anew between two parts of a sweep: what has ended would stand beside what
// learned something else.
TEST(Sweep, RefusesOtherFilesThanItBeganWith) {
  Study study;
  first_model(study.folder);
  const auto run = [&](const std::string& out) -> Result<SweepRecord> {
    CpuDevice device({.thread_count = 1});
    JIGE_TRY(const auto plan,
             plan_sweep({study.trial("one", 1e-3, 0.25)}, out, {}, {}, device.team()));
    return run_all(plan, {.out_folder = out});
  };
  const auto expect_refused = [&](const std::string& out) {
    const auto record = run(out);
    ASSERT_FALSE(record);
    EXPECT_THAT(record.error().message, HasSubstr("trial one would read other data"));
  };
  const std::string corpus = small_corpus(30);
  ASSERT_TRUE(run(study.out()));
  study.folder.write("a.jsonl", small_corpus(31));
  expect_refused(study.out());
  study.folder.write("a.jsonl", corpus);
  EXPECT_TRUE(run(study.out()));

  study.base.data.eval_fraction = 0;
  study.base.data.eval_files = {study.folder.file("b.jsonl")};
  study.folder.write("b.jsonl", small_corpus(5));
  ASSERT_TRUE(run(study.folder.file("measured")));
  study.folder.write("b.jsonl", small_corpus(6));
  expect_refused(study.folder.file("measured"));

  study.base = tuning_options(study.base, study.folder.file("first/model"), "unused");
  ASSERT_TRUE(run(study.folder.file("tuned")));
  const std::string weights = study.folder.file("first/model/model.safetensors");
  std::string bytes = bytes_of(weights);
  bytes[bytes.size() - 3] ^= 1;
  study.folder.write("first/model/model.safetensors", bytes);
  expect_refused(study.folder.file("tuned"));
}

TEST(Sweep, RefusesTrialsThatWouldBeTheSameRun) {
  const Study study;
  auto trials = study.trials();
  trials.push_back(trials[1]);
  trials.back().name = "again";
  trials.back().options.thread_count = 2;
  const auto plan = study.plan(std::move(trials));
  ASSERT_FALSE(plan);
  EXPECT_THAT(plan.error().message, HasSubstr("trials early and again would be the same run"));
}

TEST(Sweep, NamesTheTrialThatCannotRun) {
  const Study study;
  auto trials = study.trials();
  trials[2].options.schedule.warmup_steps = 13;
  const auto plan = study.plan(std::move(trials));
  ASSERT_FALSE(plan);
  EXPECT_THAT(plan.error().message, HasSubstr("trial other"));
  EXPECT_FALSE(std::filesystem::exists(study.out() + "/trials"));
}

// Epochs of one length and lengths by epochs: the step in which data ends is a trial's own.
TEST(Sweep, SharesStepsOfRunsOverEpochs) {
  const Study study;
  std::vector<SweepTrial> trials;
  for (const double epochs : {1.0, 1.5, 2.0}) {
    trials.push_back(study.trial(fmt::format("epochs={}", epochs), 1e-3, 0.25));
    TrainOptions& options = trials.back().options;
    options.steps = 0;
    options.epochs = epochs;
    options.schedule.kind = ScheduleKind::kConstant;
  }
  const auto plan = study.plan(std::move(trials));
  ASSERT_TRUE(plan) << plan.error().message;
  const auto record = run_all(*plan, {.out_folder = study.out()});
  ASSERT_TRUE(record) << record.error().message;
  EXPECT_EQ(plan->tree.steps_run, record->trials.back().steps - 1 + 3);
  for (const SweepTrial& trial : plan->trials) {
    const TrainOptions alone = run_alone(study, trial);
    EXPECT_EQ(logged(trial.options), logged(alone)) << trial.name;
    EXPECT_TRUE(model_bytes(trial.options) == model_bytes(alone)) << trial.name;
  }
}

}  // namespace
}  // namespace jige::train
