// Runs with dropout: the mask belongs to the step's tokens and to nothing else.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "train/test_support.h"
#include "train/trainer.h"

namespace jige::train {
namespace {

using ::testing::HasSubstr;

struct DropoutLosses {
  std::vector<double> losses, evals;
};

Result<DropoutLosses> train_dropped(const TrainOptions& options, int64_t stop_behind = 0) {
  DropoutLosses run;
  TrainCallbacks callbacks;
  callbacks.on_step = [&](const StepInfo& info) { run.losses.push_back(info.loss); };
  callbacks.on_eval = [&](const EvalInfo& info) { run.evals.push_back(info.loss); };
  callbacks.should_stop = [&] { return static_cast<int64_t>(run.losses.size()) == stop_behind; };
  JIGE_TRY(const auto trainer, Trainer::create(options, callbacks));
  JIGE_TRY(const TrainResult result, trainer->run());
  return run;
}

TrainOptions dropout_options(const TestFolder& folder, const std::string& out) {
  TrainOptions options = tiny_options(folder, {folder.write("a.jsonl", small_corpus(60))});
  options.out_folder = folder.file(out);
  options.dropout = 0.2;
  options.config->layer_count = 3;
  options.data.eval_fraction = 0.1;
  options.eval_every_steps = 3;
  return options;
}

TEST(DropoutRun, GivesTheSameBitsHoweverItIsRunAndStopped) {
  const TestFolder folder;
  const TrainOptions whole = dropout_options(folder, "whole");
  const auto expected = train_dropped(whole);
  ASSERT_TRUE(expected) << expected.error().message;
  const auto model_of = [](const TrainOptions& options) {
    return *read_file(options.out_folder + "/model/model.safetensors");
  };
  using enum plan::OptimizerMode;
  const std::vector<std::optional<PipelineOptions>> ways = {
      std::nullopt,
      PipelineOptions{.devices = 2, .kinds = {plan::ScheduleKind::k1F1B}, .recompute = {true}},
      PipelineOptions{.devices = 2,
                      .kinds = {plan::ScheduleKind::kSPipe},
                      .optimizers = {kAsync},
                      .forward_stages = {1},
                      .backward_stages = {2}},
      PipelineOptions{.devices = 3, .kinds = {plan::ScheduleKind::kGPipe}, .optimizers = {kDevice}},
  };
  // Every way begins the run, and the next one ends it.
  for (size_t i = 0; i < ways.size(); ++i) {
    SCOPED_TRACE(i);
    TrainOptions options = dropout_options(folder, "way" + std::to_string(i));
    options.micro_batch_tokens = 32;
    options.thread_count = 2;
    options.pipeline = ways[i];
    const auto first = train_dropped(options, 2);
    ASSERT_TRUE(first) << first.error().message;
    options.pipeline = ways[(i + 1) % ways.size()];
    const auto second = train_dropped(options);
    ASSERT_TRUE(second) << second.error().message;
    std::vector<double> losses = first->losses;
    losses.insert(losses.end(), second->losses.begin(), second->losses.end());
    EXPECT_EQ(losses, expected->losses);
    EXPECT_EQ(second->evals, expected->evals);
    EXPECT_EQ(model_of(options), model_of(whole));
  }
}

TEST(DropoutRun, DropsInTrainingOnlyAndAnewInEachStep) {
  const TestFolder folder;
  TrainOptions options = dropout_options(folder, "with");
  options.step_tokens = 4096;     // every step learns from everything
  options.schedule.peak = 1e-30;  // changes no bit of any weight
  options.eval_every_steps = 1;
  options.steps = 3;
  const auto with = train_dropped(options);
  ASSERT_TRUE(with) << with.error().message;
  options.out_folder = folder.file("without");
  options.dropout = 0;
  const auto without = train_dropped(options);
  ASSERT_TRUE(without) << without.error().message;
  EXPECT_EQ(with->evals, without->evals);
  EXPECT_NE(with->losses[0], without->losses[0]);
  EXPECT_NE(with->losses[0], with->losses[1]);
  options.out_folder = folder.file("seed");
  options.dropout = 0.2;
  options.init_folder = folder.file("without/model");
  options.config.reset();
  options.seed = 2;
  const auto other = train_dropped(options);
  ASSERT_TRUE(other) << other.error().message;
  EXPECT_NE(other->losses[0], with->losses[0]);
}

TEST(DropoutRun, IsPartOfWhatARunGoesOnUnder) {
  const TestFolder folder;
  TrainOptions options = dropout_options(folder, "out");
  ASSERT_TRUE(train_dropped(options, 2));
  options.dropout = 0.3;
  const auto other = train_dropped(options);
  ASSERT_FALSE(other);
  EXPECT_THAT(other.error().message, HasSubstr("dropout = 0.2, this run has 0.3"));
  options.dropout = 1;
  const auto all = train_dropped(options);
  ASSERT_FALSE(all);
  EXPECT_EQ(all.error().code, Code::kInvalidArgument);
  EXPECT_THAT(all.error().message, HasSubstr("dropout is 1"));
}

}  // namespace
}  // namespace jige::train
