// Trials of a sweep end with the bits of the same runs alone, also where the sweep is killed.

#include "train/sweep.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <map>

#include "base/clock.h"
#include "base/rng.h"
#include "base/test_fuzz_rounds.h"
#include "base/test_mutator.h"
#include "formats/checkpoint.h"
#include "tensor/cpu_device.h"
#include "train/preference_run_test_support.h"
#include "train/trainer_test_support.h"

namespace jige::train {
namespace {

using ::testing::HasSubstr;

// A corpus and options that trials vary.
struct Study {
  TestFolder folder;
  TrainOptions base;

  explicit Study(DType compute = DType::kF32) {
    folder.write("a.jsonl", small_corpus(60));
    base = tiny_options(folder, {folder.file("a.jsonl")});
    base.compute = compute;
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

Result<SweepRecord> run_all(const SweepPlan& plan, const SweepOptions& options,
                            TrainCallbacks callbacks = {}) {
  return run_sweep(
      plan, options,
      {.on_trial = [&](const SweepPlace&) { return callbacks; }, .on_result = {}, .on_ended = {}});
}

// What a log says of losses, without what depends on the clock.
std::vector<std::string> logged(const TrainOptions& options) {
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
TrainOptions run_alone(const Study& study, const SweepTrial& trial) {
  TrainOptions options = trial.options;
  options.out_folder = study.folder.file("alone-" + trial.name);
  options.data.cache_folder.clear();
  const auto run = train(options);
  EXPECT_TRUE(run) << run.error().message;
  return options;
}

void expect_bits_of_runs_alone(const Study& study, const SweepPlan& plan) {
  for (const SweepTrial& trial : plan.trials) {
    SCOPED_TRACE(trial.name);
    const TrainOptions alone = run_alone(study, trial);
    EXPECT_EQ(logged(trial.options), logged(alone));
    EXPECT_EQ(logged(alone).size(), 12u + 4u);
    EXPECT_TRUE(model_bytes(trial.options) == model_bytes(alone));
  }
}

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
    const double kill_after_s = 0.002 + (0.03 + 0.002 * round) * rng.uniform();
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
  const std::string corpus = small_corpus(60);
  ASSERT_TRUE(run(study.out()));
  study.folder.write("a.jsonl", small_corpus(61));
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

// A trial that shares steps behind the rung begins where the other one has been; and one whose rate
// is far too high takes no other's place.
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
