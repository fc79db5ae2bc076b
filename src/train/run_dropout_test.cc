// Runs that drop blocks, and numbers of a pool of subnetworks.
#include "train/run_dropout.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "train/step_flops.h"
#include "train/stopped_run_test_support.h"
#include "train/test_support.h"
#include "train/trainer.h"

namespace jige::train {
namespace {

using ::testing::HasSubstr;

TrainOptions pooled_options(int64_t pool, int64_t at_once, int64_t steps) {
  TrainOptions options;
  options.dropout = 0.2;
  options.dropout_pool = pool;
  options.dropout_at_once = at_once;
  options.schedule.steps_total = steps;
  return options;
}

TEST(RunDropout, EverySubnetworkOfThePoolHasOneTurnAsLongAsTheOthers) {
  const TrainOptions options = pooled_options(24, 4, 50);  // six turns of 8 or 9 steps
  std::map<uint64_t, std::set<int64_t>> steps_of;
  for (int64_t step = 1; step <= 50; ++step) {
    const model::StepDropout dropout = step_dropout(options, step, 100);
    EXPECT_EQ(dropout.members.size(), 4u);
    EXPECT_TRUE(dropout.pooled);
    for (const uint64_t key : dropout.members) steps_of[key].insert(step);
  }
  EXPECT_EQ(steps_of.size(), 24u);
  for (const auto& [key, steps] : steps_of) {
    EXPECT_EQ(*steps.rbegin() - *steps.begin() + 1, std::ssize(steps)) << "not one turn";
    EXPECT_THAT(std::ssize(steps), ::testing::AllOf(::testing::Ge(8), ::testing::Le(9)));
  }
}

// Where a step has one sequence, its first subnetwork alone is trained.
TEST(RunDropout, SubnetworksBeginStepsInTurns) {
  const TrainOptions options = pooled_options(8, 4, 80);
  std::map<uint64_t, int> firsts;
  for (int64_t step = 1; step <= 40; ++step) ++firsts[step_dropout(options, step, 9).members[0]];
  EXPECT_EQ(firsts.size(), 4u);
  for (const auto& [key, times] : firsts) EXPECT_EQ(times, 10);
}

TEST(RunDropout, ThePoolIsPutInAnotherOrderByAnotherSeed) {
  TrainOptions options = pooled_options(64, 8, 64);
  const auto first = step_dropout(options, 1, 9).members;
  EXPECT_EQ(first, step_dropout(options, 1, 9).members);
  options.seed = 2;
  EXPECT_NE(first, step_dropout(options, 1, 9).members);
}

TEST(RunDropout, WithoutAPoolSubnetworksAreNewInEveryStep) {
  TrainOptions options = pooled_options(0, 4, 20);
  EXPECT_TRUE(step_dropout(options, 1, 9).members.empty());  // each number by itself
  options.ffn_dropout = 0.5;
  std::set<uint64_t> keys;
  for (int64_t step = 1; step <= 20; ++step) {
    const model::StepDropout dropout = step_dropout(options, step, 9);
    EXPECT_FALSE(dropout.pooled);
    keys.insert(dropout.members.begin(), dropout.members.end());
  }
  EXPECT_EQ(keys.size(), 80u);
}

TrainOptions block_options(const TestFolder& folder, const std::string& out) {
  TrainOptions options = tiny_options(folder, {folder.write("a.jsonl", small_corpus(60))});
  options.out_folder = folder.file(out);
  options.config->ffn_size = 128;
  options.ffn_dropout = 0.5;
  options.ffn_dropout_block = 32;
  options.dropout_at_once = 3;
  options.steps = 4;
  options.data.eval_fraction = 0.1;
  options.eval_every_steps = 3;
  return options;
}

std::string error_of(const TrainOptions& options) {
  const auto run = train_until(options);
  return run ? std::string() : run.error().message;
}

// Arms: blocks new in each step, blocks of a pool, numbers of a pool, both.
TEST(RunDropout, GivesTheSameBitsHoweverItIsRunAndStopped) {
  using enum plan::OptimizerMode;
  const std::vector<std::optional<PipelineOptions>> ways = {
      std::nullopt,
      PipelineOptions{.devices = 2, .kinds = {plan::ScheduleKind::k1F1B}, .recompute = {true}},
      PipelineOptions{.devices = 2,
                      .kinds = {plan::ScheduleKind::kSPipe},
                      .optimizers = {kAsync},
                      .forward_stages = {1},
                      .backward_stages = {2}},
  };
  for (const int arm : {0, 1, 2, 3}) {
    const TestFolder folder;
    const auto options_of = [&](const std::string& out) {
      TrainOptions options = block_options(folder, out);
      if (arm > 0) options.dropout_pool = 6;
      if (arm > 1) options.dropout = 0.2;
      if (arm == 2) options.ffn_dropout = 0;
      return options;
    };
    SCOPED_TRACE(fmt::format("arm {}", arm));
    // Two of the three ways each, and all where there is everything.
    auto tried = ways;
    if (arm < 3) tried.erase(tried.begin() + arm);
    expect_bits_however_run(options_of, tried, "/model/model.safetensors");
  }
}

TEST(RunDropout, DropsBlocksInTrainingOnly) {
  const TestFolder folder;
  TrainOptions options = block_options(folder, "with");
  folder.write("a.jsonl", small_corpus(15));
  options.step_tokens = 1024;     // every step learns from everything
  options.schedule.peak = 1e-30;  // changes no bit of any weight
  options.eval_every_steps = 1;
  options.steps = 3;
  const auto with = train_until(options);
  ASSERT_TRUE(with) << with.error().message;
  options.out_folder = folder.file("without");
  options.ffn_dropout = 0;
  const auto without = train_until(options);
  ASSERT_TRUE(without) << without.error().message;
  EXPECT_EQ(with->evals, without->evals);
  EXPECT_NE(with->losses[0], without->losses[0]);
  EXPECT_NE(with->losses[0], with->losses[1]);
}

// Three turns of two steps: the same in both, other in the next.
TEST(RunDropout, ATurnOfThePoolDropsTheSameInAllItsSteps) {
  const TestFolder folder;
  TrainOptions options = block_options(folder, "out");
  std::string text;  // the same in every step
  for (int i = 0; i < 8; ++i) text += "{\"text\": \"One and the same line.\"}\n";
  options.data.files = {folder.write("same.jsonl", text)};
  options.data.eval_fraction = 0;
  options.dropout = 0.3;
  options.dropout_pool = 3;
  options.dropout_at_once = 1;
  options.schedule.peak = 1e-30;  // changes no bit of any weight
  options.steps = 6;
  const auto run = train_until(options);
  ASSERT_TRUE(run) << run.error().message;
  for (const size_t step : {0, 2, 4}) {
    EXPECT_EQ(run->losses[step], run->losses[step + 1]);
    if (step == 0) continue;
    EXPECT_NE(run->losses[step], run->losses[step - 1]);
  }
}

TEST(RunDropout, IsPartOfWhatARunGoesOnUnder) {
  const TestFolder folder;
  TrainOptions options = block_options(folder, "out");
  ASSERT_TRUE(train_until(options, 2));
  options.ffn_dropout_block = 64;
  EXPECT_THAT(error_of(options), HasSubstr("ffn_dropout_block = 32, this run has 64"));
  options.ffn_dropout_block = 32;
  options.dropout_at_once = 2;
  EXPECT_THAT(error_of(options), HasSubstr("dropout_at_once = 3, this run has 2"));
  options.dropout_at_once = 3;
  options.dropout_pool = 6;
  EXPECT_THAT(error_of(options), HasSubstr("was made without dropout_pool, this run has 6"));
  options.ffn_dropout = options.dropout_pool = 0;
  EXPECT_THAT(error_of(options), HasSubstr("ffn_dropout"));
}

TEST(RunDropout, RefusesWhatItCannotDo) {
  const TestFolder folder;
  const auto refused = [&](auto&& change) {
    TrainOptions options = block_options(folder, "out");
    change(options);
    return error_of(options);
  };
  EXPECT_THAT(refused([](auto& o) { o.ffn_dropout = 1; }), HasSubstr("--ffn-dropout is 1"));
  EXPECT_THAT(refused([](auto& o) { o.ffn_dropout_block = 48; }),
              HasSubstr("--ffn-dropout-block is 48, but must be a multiple of 32"));
  EXPECT_THAT(refused([](auto& o) { o.ffn_dropout_block = 96; }),
              HasSubstr("96 does not divide the feed-forward width 128"));
  EXPECT_THAT(refused([](auto& o) { o.ffn_dropout = 0.1; }),
              HasSubstr("0.1 of 4 blocks of 32 drops none"));
  EXPECT_THAT(refused([](auto& o) { o.ffn_dropout = 0.9; }), HasSubstr("drops all"));
  EXPECT_THAT(refused([](auto& o) { o.dropout_pool = 4; }),
              HasSubstr("--dropout-pool 4 cannot be trained 3 at a time"));
  EXPECT_THAT(refused([](auto& o) { o.dropout_pool = 300; }),
              HasSubstr("takes 100 steps to train each at all"));
  EXPECT_THAT(refused([](auto& o) {
                o.ffn_dropout = 0;
                o.dropout_pool = 6;
              }),
              HasSubstr("give one of them"));
  EXPECT_THAT(refused([](auto& o) { o.gpus = {0}; }), HasSubstr("--device cuda"));
  EXPECT_THAT(refused([&](auto& o) { o.config = tiny_expert_config(); }),
              HasSubstr("this model has experts"));
}

TEST(RunDropout, CountsTheProductsThatAreLeftOut) {
  const TestFolder folder;
  TrainOptions options = block_options(folder, "out");
  const auto architecture = model::Architecture::create(*options.config);
  ASSERT_TRUE(architecture);
  // Half of three matrices of [128, 32] in two layers, a forward and two gradients of ten tokens.
  const double left_out = 3.0 * 2 * 10 * 2 * 0.5 * 3 * 128 * 32;
  const double dropped = training_flops(**architecture, options, 10, 5);
  options.ffn_dropout = 0;
  EXPECT_DOUBLE_EQ(training_flops(**architecture, options, 10, 5) - dropped, left_out);
}

}  // namespace
}  // namespace jige::train
