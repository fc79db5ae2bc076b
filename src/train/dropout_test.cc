// Runs with dropout: the mask belongs to the step's tokens and to nothing else.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "train/stopped_run_test_support.h"
#include "train/test_support.h"
#include "train/trainer.h"

namespace jige::train {
namespace {

using ::testing::HasSubstr;

TrainOptions dropout_options(const TestFolder& folder, const std::string& out) {
  TrainOptions options = tiny_options(folder, {folder.write("a.jsonl", small_corpus(60))});
  options.out_folder = folder.file(out);
  options.dropout = 0.2;
  options.config->layer_count = 3;
  options.steps = 4;
  options.data.eval_fraction = 0.1;
  options.eval_every_steps = 3;
  return options;
}

TEST(DropoutRun, GivesTheSameBitsHoweverItIsRunAndStopped) {
  const TestFolder folder;
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
  expect_bits_however_run([&](const std::string& out) { return dropout_options(folder, out); },
                          ways, "/model/model.safetensors");
}

TEST(DropoutRun, DropsInTrainingOnlyAndAnewInEachStep) {
  const TestFolder folder;
  TrainOptions options = dropout_options(folder, "with");
  folder.write("a.jsonl", small_corpus(15));
  options.step_tokens = 1024;     // every step learns from everything
  options.schedule.peak = 1e-30;  // changes no bit of any weight
  options.eval_every_steps = 1;
  options.steps = 3;
  const auto with = train_until(options);
  ASSERT_TRUE(with) << with.error().message;
  options.out_folder = folder.file("without");
  options.dropout = 0;
  const auto without = train_until(options);
  ASSERT_TRUE(without) << without.error().message;
  EXPECT_EQ(with->evals, without->evals);
  EXPECT_NE(with->losses[0], without->losses[0]);
  EXPECT_NE(with->losses[0], with->losses[1]);
  options.out_folder = folder.file("seed");
  options.dropout = 0.2;
  options.init_folder = folder.file("without/model");
  options.config.reset();
  options.seed = 2;
  const auto other = train_until(options);
  ASSERT_TRUE(other) << other.error().message;
  EXPECT_NE(other->losses[0], with->losses[0]);
}

TEST(DropoutRun, IsPartOfWhatARunGoesOnUnder) {
  const TestFolder folder;
  TrainOptions options = dropout_options(folder, "out");
  ASSERT_TRUE(train_until(options, 2));
  options.dropout = 0.3;
  const auto other = train_until(options);
  ASSERT_FALSE(other);
  EXPECT_THAT(other.error().message, HasSubstr("dropout = 0.2, this run has 0.3"));
  options.dropout = 1;
  const auto all = train_until(options);
  ASSERT_FALSE(all);
  EXPECT_EQ(all.error().code, Code::kInvalidArgument);
  EXPECT_THAT(all.error().message, HasSubstr("dropout is 1"));
}

}  // namespace
}  // namespace jige::train
