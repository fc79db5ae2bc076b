// Runs that keep the weights of the best measurement, and those that end when none is better.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <vector>

#include "base/file.h"
#include "formats/checkpoint.h"
#include "formats/model_config.h"
#include "train/best_measurement.h"
#include "train/rank_test_support.h"
#include "train/reward_test_support.h"
#include "train/test_support.h"
#include "train/trainer.h"
#include "train/trainer_test_support.h"

namespace jige::train {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// Learns four words by heart and is measured on others: what is held out gets worse soon.
TrainOptions overfitting(const TestFolder& folder) {
  std::string seen;
  for (const char* word : {"alpha", "beta", "gamma", "delta"}) {
    seen += dump_json(Json{{"text", fmt::format("the {} is {}", word, word)}}) + "\n";
  }
  TrainOptions options = tiny_options(folder, {folder.write("seen.jsonl", seen)});
  options.data.eval_files = {folder.write("held.jsonl", small_corpus(6))};
  options.micro_batch_tokens = 32;
  options.step_tokens = 64;
  options.schedule.peak = 1e-2;
  options.schedule.kind = ScheduleKind::kConstant;
  options.steps = 40;
  options.eval_every_steps = 4;
  return options;
}

std::vector<int64_t> kept_steps(const TrainOptions& options) {
  std::vector<int64_t> steps;
  for (const auto& name : formats::list_checkpoints(options.out_folder + "/checkpoints")) {
    steps.push_back(name.step);
  }
  return steps;
}

// The step of the least loss, the first of equals.
int64_t best_step_of(const std::vector<EvalInfo>& evals) {
  return std::min_element(evals.begin(), evals.end(),
                          [](const EvalInfo& a, const EvalInfo& b) { return a.loss < b.loss; })
      ->step;
}

template <typename T>
void expect_failure(const Result<T>& result, Code code, const char* words) {
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().code, code);
  EXPECT_THAT(result.error().message, HasSubstr(words));
}

EvalInfo loss_at(int64_t step, double loss) { return {.step = step, .loss = loss}; }

TEST(BestMeasurement, IsTheLeastLossAndTheFirstOfEquals) {
  std::optional<BestMeasurement> best;
  EXPECT_FALSE(note_measurement(loss_at(1, std::numeric_limits<double>::quiet_NaN()), best));
  EXPECT_FALSE(best);
  EXPECT_TRUE(note_measurement(loss_at(2, 3.0), best));
  EXPECT_FALSE(note_measurement(loss_at(3, 3.0), best));
  EXPECT_FALSE(note_measurement(loss_at(4, std::numeric_limits<double>::infinity()), best));
  EXPECT_EQ(best->step, 2);
  EXPECT_EQ(best->since, 2);
  EXPECT_TRUE(note_measurement(loss_at(5, 2.5), best));
  EXPECT_EQ(best->step, 5);
  EXPECT_EQ(best->since, 0);
}

TEST(BestMeasurement, IsTheGreatestReward) {
  std::optional<BestMeasurement> best;
  EvalInfo info{.step = 0};
  info.rewards.emplace();
  for (const auto& [reward, better] : {std::pair{0.25, true}, {0.5, true}, {0.25, false}}) {
    ++info.step;
    info.rewards->reward = reward;
    EXPECT_EQ(note_measurement(info, best), better) << reward;
  }
  EXPECT_EQ(best->step, 2);
}

TEST(BestMeasurement, OfAStateThatLiesIsRefused) {
  const BestMeasurement best{.cost = 1.5, .step = 8, .since = 2};
  const auto read = BestMeasurement::from_json(best.to_json(), "state.json");
  ASSERT_TRUE(read);
  EXPECT_EQ(read->cost, 1.5);
  EXPECT_EQ(read->step, 8);
  EXPECT_EQ(read->since, 2);
  for (const char* field : {"step", "since"}) {
    Json json = best.to_json();
    json[field] = -1;
    expect_failure(BestMeasurement::from_json(json, "state.json"), Code::kInvalidArgument,
                   "which no measurement gives");
  }
  EXPECT_FALSE(BestMeasurement::from_json(Json(3), "state.json"));
}

TEST(KeptBest, IsTheModelOfTheRun) {
  const TestFolder folder;
  TrainOptions options = overfitting(folder);
  options.keep_best = true;
  options.checkpoint_every_steps = 4;
  options.checkpoints_kept = 1;
  const auto run = train(options);
  ASSERT_TRUE(run) << run.error().message;
  const int64_t best = best_step_of(run->evals);
  ASSERT_GT(best, 4) << "the corpus shall have something to learn at first";
  ASSERT_LT(best, 32) << "and be learned by heart in the end";
  EXPECT_EQ(run->result.steps_done, 40);
  EXPECT_EQ(run->result.model_step, best);
  EXPECT_EQ(run->result.best->step, best);
  EXPECT_THAT(kept_steps(options), ElementsAre(40, best));
  for (const Json& record : log_records(options, "eval")) {
    const double loss = record["loss"];
    const auto before = std::count_if(run->evals.begin(), run->evals.end(), [&](const EvalInfo& e) {
      return e.step < record["step"] && e.loss <= loss;
    });
    EXPECT_EQ(record["best"], before == 0) << record["step"];
  }
  EXPECT_EQ(log_records(options, "end").at(0)["model_step"], best);

  // Another run that ends there has the same weights.
  TrainOptions shorter = options;
  shorter.keep_best = false;
  shorter.steps = best;
  shorter.out_folder = folder.file("shorter");
  ASSERT_TRUE(train(shorter));
  EXPECT_EQ(model_bytes(options), model_bytes(shorter));

  // And one that keeps none has others.
  TrainOptions last = options;
  last.keep_best = false;
  last.out_folder = folder.file("last");
  const auto whole = train(last);
  ASSERT_TRUE(whole);
  EXPECT_EQ(whole->losses, run->losses);
  EXPECT_EQ(whole->result.model_step, 40);
  EXPECT_EQ(whole->result.best->step, best);
  EXPECT_THAT(kept_steps(last), ElementsAre(40));
  EXPECT_NE(model_bytes(last), model_bytes(options));
}

TEST(KeptBest, IsTheSameOfARunThatWasKilledAndWentOn) {
  const TestFolder folder;
  TrainOptions options = overfitting(folder);
  options.keep_best = true;
  options.checkpoints_kept = 1;
  ASSERT_TRUE(train(options));
  const std::string model = model_bytes(options);
  for (const int64_t cut : {5, 22, 39}) {
    TrainOptions parts = options;
    parts.out_folder = folder.file(fmt::format("cut-{}", cut));
    int64_t step = 0;
    const auto first = train(parts, {.on_step = [&](const StepInfo& info) { step = info.step; },
                                     .should_stop = [&] { return step >= cut; }});
    ASSERT_TRUE(first);
    EXPECT_TRUE(first->result.stopped);
    const auto second = train(parts);
    ASSERT_TRUE(second) << second.error().message;
    EXPECT_EQ(model_bytes(parts), model) << cut;
  }
}

TEST(KeptBest, OfAnAdapterIsTheAdapterAndTheMergedModel) {
  const TestFolder folder;
  TrainOptions base = tiny_options(folder, {folder.write("a.jsonl", small_corpus(20))});
  base.out_folder = folder.file("base");
  ASSERT_TRUE(train(base));
  TrainOptions options =
      tuning_options(overfitting(folder), base.out_folder + "/model", folder.file("tuned"));
  options.lora = formats::LoraConfig{.rank = 4, .alpha = 16};
  options.keep_best = true;
  const auto run = train(options);
  ASSERT_TRUE(run) << run.error().message;
  const int64_t best = best_step_of(run->evals);
  ASSERT_LT(best, 40);
  TrainOptions shorter = options;
  shorter.keep_best = false;
  shorter.steps = best;
  shorter.out_folder = folder.file("shorter");
  ASSERT_TRUE(train(shorter));
  EXPECT_EQ(model_bytes(options), model_bytes(shorter));
  const std::string adapter = "/adapter/adapter_model.safetensors";
  EXPECT_EQ(bytes_of(options.out_folder + adapter), bytes_of(shorter.out_folder + adapter));
}

TEST(KeptBest, ThatIsNotThereAnyMoreIsForgotten) {
  const TestFolder folder;
  TrainOptions options = overfitting(folder);
  int64_t step = 0;
  ASSERT_TRUE(train(options, {.on_step = [&](const StepInfo& info) { step = info.step; },
                              .should_stop = [&] { return step >= 24; }}));
  options.keep_best = true;
  const auto second = train(options);
  ASSERT_TRUE(second) << second.error().message;
  EXPECT_GT(second->result.model_step, 24);
  EXPECT_EQ(second->result.model_step, best_step_of(second->evals));
}

TEST(KeptBest, MayBeChosenBehindTheEndWhereItsCheckpointIsThere) {
  const TestFolder folder;
  TrainOptions options = overfitting(folder);
  options.checkpoint_every_steps = 4;
  options.checkpoints_kept = 100;
  ASSERT_TRUE(train(options));
  const std::string last = model_bytes(options);
  std::string best;
  for (const bool keeps : {true, true, false}) {
    options.keep_best = keeps;
    const auto run = train(options);
    ASSERT_TRUE(run) << run.error().message;
    EXPECT_TRUE(run->result.was_complete);
    EXPECT_EQ(run->result.model_step < 40, keeps);
    if (keeps && best.empty()) best = model_bytes(options);
    EXPECT_EQ(model_bytes(options), keeps ? best : last);
    EXPECT_EQ(log_records(options, "end").size(), 1u);
  }
  EXPECT_NE(best, last);
  // In the type asked for, not that of the run that wrote the checkpoint.
  options.keep_best = true;
  options.export_dtype = options.export_dtype == DType::kF32 ? DType::kBF16 : DType::kF32;
  ASSERT_TRUE(train(options));
  const auto config = formats::load_model_config(options.out_folder + "/model");
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_EQ(config->stored_dtype, options.export_dtype);
}

TEST(KeptBest, ThatIsDamagedIsNamed) {
  const TestFolder folder;
  TrainOptions options = overfitting(folder);
  options.keep_best = true;
  const auto run = train(options, {.on_step = [&](const StepInfo& info) {
                           if (info.step != 40) return;
                           const auto steps = kept_steps(options);
                           ASSERT_FALSE(steps.empty());
                           const int64_t best = steps.front();
                           ASSERT_LT(best, 36);
                           const std::string file =
                               fmt::format("{}/checkpoints/step-{:08d}/params.safetensors",
                                           options.out_folder, best);
                           std::filesystem::resize_file(file, 1000);
                         }});
  expect_failure(run, Code::kCorrupt, "the best weights, of step");
  EXPECT_FALSE(std::filesystem::exists(options.out_folder + "/model"));
}

TEST(Patience, EndsARunThatGetsNoBetter) {
  const TestFolder folder;
  TrainOptions options = overfitting(folder);
  options.patience = 2;
  const auto run = train(options);
  ASSERT_TRUE(run) << run.error().message;
  const int64_t best = best_step_of(run->evals);
  EXPECT_EQ(run->result.steps_done, best + 8);
  EXPECT_FALSE(run->result.stopped);
  EXPECT_EQ(run->result.model_step, best);
  EXPECT_TRUE(std::filesystem::exists(options.out_folder + "/model/model.safetensors"));

  // Nothing is left to do, unless it has more patience.
  const auto again = train(options);
  ASSERT_TRUE(again);
  EXPECT_TRUE(again->result.was_complete);
  EXPECT_TRUE(again->losses.empty());
  options.patience = 0;
  options.keep_best = true;
  const auto on = train(options);
  ASSERT_TRUE(on) << on.error().message;
  EXPECT_FALSE(on->result.was_complete);
  EXPECT_EQ(on->result.steps_done, 40);
  TrainOptions whole = options;
  whole.out_folder = folder.file("whole");
  const auto uninterrupted = train(whole);
  ASSERT_TRUE(uninterrupted);
  EXPECT_EQ(model_bytes(options), model_bytes(whole));
  EXPECT_EQ(log_records(options, "step").size(), 40u);
  EXPECT_EQ(log_records(options, "end").size(), 1u);
}

TEST(Patience, IsTheSameOnSeveralRanks) {
  const TestFolder folder;
  TrainOptions options = overfitting(folder);
  options.patience = 2;
  options.micro_batch_tokens = 32;
  const RankOutcome alone = train_one(options);
  ASSERT_EQ(alone.error, "");
  ASSERT_LT(alone.result.steps_done, 40);
  for (const bool shard : {false, true}) {
    TrainOptions several = options;
    several.out_folder = folder.file(shard ? "sharded" : "whole");
    const auto ranks = train_ranks(several, {.size = 3, .shard = shard, .delays = true});
    expect_alike(ranks, alone, several.out_folder);
    for (const RankOutcome& rank : ranks) {
      EXPECT_EQ(rank.result.steps_done, alone.result.steps_done);
      EXPECT_EQ(rank.result.model_step, alone.result.model_step);
    }
    EXPECT_EQ(saved_bytes(several), saved_bytes(options));
    EXPECT_EQ(kept_steps(several), kept_steps(options));
  }
}

TEST(KeptBest, OfRewardsMayBeTheFirstWeights) {
  const TestFolder folder;
  first_model(folder);
  TrainOptions options = reward_options(folder, "run");
  // Of what is held out the first model's answers are right, and those that it learns are wrong.
  options.data.eval_files = {
      folder.write("eval.jsonl", dump_json(Json{{"prompt", "0 is "}, {"answer", "n"}}) + "\n")};
  options.steps = 40;
  options.eval_every_steps = 10;
  options.schedule.peak = 1e-2;
  options.schedule.kind = ScheduleKind::kConstant;
  options.patience = 3;
  const auto run = train(options);
  ASSERT_TRUE(run) << run.error().message;
  ASSERT_EQ(run->evals.front().rewards->reward, 1);
  ASSERT_EQ(run->evals.back().rewards->reward, 0);
  EXPECT_EQ(run->result.steps_done, 30);
  EXPECT_EQ(run->result.model_step, 0);
  EXPECT_EQ(model_bytes(options), bytes_of(options.init_folder + "/model.safetensors"));
}

TEST(Patience, WantsMeasurements) {
  const TestFolder folder;
  TrainOptions options = overfitting(folder);
  options.patience = 2;
  options.eval_every_steps = 0;
  expect_failure(train(options), Code::kInvalidArgument, "--eval-every");
  options.patience = 0;
  options.keep_best = true;
  options.eval_every_steps = 4;
  options.data.eval_files.clear();
  expect_failure(train(options), Code::kInvalidArgument, "nothing is held out");
}

}  // namespace
}  // namespace jige::train
