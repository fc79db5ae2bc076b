// Experts in use: what is counted and what is asked of them, in every way that a run is cut.
#include "train/expert_use.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <bit>

#include "train/expert_bias.h"
#include "train/rank_test_support.h"
#include "train/trainer_test_support.h"

namespace jige::train {
namespace {

using ::testing::HasSubstr;

TEST(ExpertUse, TellsTheBusiestExpertOfALayerByEqualUse) {
  const ExpertUse use = {.expert_count = 4, .counts = {3, 3, 3, 3, 0, 9, 2, 1}, .balance = {}};
  const BusiestExperts busiest = busiest_experts(use);
  EXPECT_DOUBLE_EQ(busiest.most, 3);
  EXPECT_DOUBLE_EQ(busiest.mean, 2);
}

TrainOptions balanced_options(const TestFolder& folder, const std::string& out) {
  TrainOptions options = rank_options(folder, out);
  options.config = tiny_expert_config();
  options.expert_balance = 0.5;
  return options;
}

// What a run said of its experts, to the bit.
std::vector<uint64_t> expert_numbers(const std::vector<StepInfo>& steps) {
  std::vector<uint64_t> bits;
  for (const StepInfo& step : steps) {
    EXPECT_TRUE(step.experts && step.experts->balance_loss) << step.step;
    if (!step.experts || !step.experts->balance_loss) continue;
    for (const double number :
         {step.experts->busiest.most, step.experts->busiest.mean, *step.experts->balance_loss}) {
      bits.push_back(std::bit_cast<uint64_t>(number));
    }
  }
  return bits;
}

// One run, and the same cut in other ways.
void expect_same_bits_however_cut(const TestFolder& folder, const TrainOptions& one) {
  const RankOutcome alone = train_one(one);
  ASSERT_EQ(alone.error, "");
  const std::vector<uint64_t> expected = expert_numbers(alone.steps);
  EXPECT_EQ(expected.size(), 3 * alone.steps.size());
  const std::string saved = saved_bytes(one);
  const auto expect_same = [&](const TrainOptions& options, const RankOutcome& outcome) {
    ASSERT_EQ(outcome.error, "");
    EXPECT_EQ(outcome.numbers, alone.numbers);
    EXPECT_EQ(expert_numbers(outcome.steps), expected);
    EXPECT_EQ(saved_bytes(options), saved);
  };
  TrainOptions options = one;
  options.out_folder = folder.file("cut");
  options.micro_batch_tokens = 32;
  options.thread_count = 3;
  expect_same(options, train_one(options));
  options.out_folder = folder.file("devices");
  options.pipeline = PipelineOptions{.devices = 2};
  expect_same(options, train_one(options));
  options = one;
  for (const bool shard : {false, true}) {
    options.out_folder = folder.file(shard ? "sharded" : "ranks");
    for (const RankOutcome& rank : train_ranks(options, {.size = 3, .shard = shard})) {
      expect_same(options, rank);
    }
  }
}

TEST(ExpertUse, HasTheSameBitsHoweverARunIsCut) {
  const TestFolder folder;
  expect_same_bits_however_cut(folder, balanced_options(folder, "alone"));
}

// With a bias for the choice of experts, which moves from step to step.
TrainOptions biased_options(const TestFolder& folder, const std::string& out) {
  TrainOptions options = balanced_options(folder, out);
  options.config = tiny_biased_config();
  options.expert_bias_rate = 0.01;
  return options;
}

TEST(ExpertBias, HasTheSameBitsHoweverARunIsCut) {
  const TestFolder folder;
  expect_same_bits_however_cut(folder, biased_options(folder, "alone"));
}

TEST(ExpertBias, MovesTowardsEqualUseByTheRate) {
  const auto architecture = *model::Architecture::create(*formats::load_model_config(
      std::string(JIGE_SOURCE_DIR) + "/tests/fixtures/model/minimax_m2"));
  CpuDevice cpu({.thread_count = 1});
  Arena arena(cpu, "test");
  const auto stream = *cpu.make_stream();
  const auto weights = *model::ModelWeights::create(
      arena, *architecture, {.use = model::PackFor::kTraining, .position_count = 8});
  std::vector<model::NamedParam> biases;
  for (const model::NamedParam& param : weights.trainable()) {
    if (param.spec->choice_bias) biases.push_back(param);
  }
  ASSERT_EQ(biases.size(), 2u);
  for (const auto& param : biases) std::fill_n(param.value.as<float>(), 6, 0.25f);
  move_choice_biases(
      *stream, weights,
      {.expert_count = 6, .counts = {4, 4, 4, 4, 4, 4, 3, 5, 4, 0, 12, 0}, .balance = {}}, 0.125);
  const auto values = [&](size_t layer) {
    const float* data = biases[layer].value.as<float>();
    return std::vector<float>(data, data + 6);
  };
  EXPECT_EQ(values(0), std::vector<float>(6, 0.25f));
  EXPECT_EQ(values(1), (std::vector<float>{0.375f, 0.125f, 0.25f, 0.375f, 0.125f, 0.375f}));
}

// Held-out losses and those shown are without it, the gradients are not.
TEST(ExpertUse, IsLoggedBesideTheLossAndEvensTheRouter) {
  const TestFolder folder;
  TrainOptions options = balanced_options(folder, "balanced");
  options.steps = 30;
  options.schedule.peak = 1e-2;
  options.eval_every_steps = 0;
  TrainOptions plain = options;
  plain.out_folder = folder.file("plain");
  plain.expert_balance.reset();
  ASSERT_TRUE(train(options));
  ASSERT_TRUE(train(plain));
  const auto steps = log_records(options, "step");
  const auto without = log_records(plain, "step");
  ASSERT_EQ(steps.size(), 30u);
  // The first step's loss is that of the same weights, its gradient another.
  EXPECT_EQ(steps[0]["loss"], without[0]["loss"]);
  EXPECT_EQ(steps[0]["expert_busiest"], without[0]["expert_busiest"]);
  EXPECT_NE(steps[0]["grad_norm"], without[0]["grad_norm"]);
  EXPECT_FALSE(without[0].contains("balance_loss"));
  const auto last_mean = [](const std::vector<Json>& records) {
    double sum = 0;
    for (size_t i = 20; i < 30; ++i) sum += records[i]["expert_busiest_mean"].get<double>() / 10;
    return sum;
  };
  EXPECT_LT(last_mean(steps), last_mean(without));
  for (const Json& step : steps) {
    EXPECT_GE(step["expert_busiest"], step["expert_busiest_mean"]);
    EXPECT_LE(step["expert_busiest"], 2.5);  // experts over chosen ones
    const auto layers = static_cast<double>(options.config->layer_count);
    EXPECT_NEAR(step["balance_loss"].get<double>(), 0.5 * layers, 0.4);
  }
}

TEST(ExpertUse, IsNotAskedForWhereNoRouterLearns) {
  const TestFolder folder;
  const auto refusal = [&](const auto& change) {
    TrainOptions options = balanced_options(folder, "refused");
    change(options);
    return train_one(options).error;
  };
  EXPECT_THAT(refusal([](TrainOptions& o) { o.config = tiny_config(); }),
              HasSubstr("--expert-balance is about experts, and the model has none"));
  EXPECT_THAT(refusal([](TrainOptions& o) { o.expert_bias_rate = 0.1; }),
              HasSubstr("and routers of this mixtral model have none"));
  EXPECT_THAT(refusal([](TrainOptions& o) { o.expert_balance = -1; }),
              HasSubstr("--expert-balance is -1, but must be 0"));
  const auto tune = [](TrainOptions& o) {
    o.config.reset();
    o.tokenizer_folder.clear();
    o.init_folder = "some";
  };
  EXPECT_THAT(refusal([&](TrainOptions& o) {
                tune(o);
                o.lora.emplace();
              }),
              HasSubstr("--expert-balance trains routers, which stay as they are"));
  EXPECT_THAT(refusal([&](TrainOptions& o) {
                tune(o);
                o.dpo.emplace();
              }),
              HasSubstr("--expert-balance with --dpo is not supported"));
}

TEST(ExpertUse, IsAskedForByTheConfigurationOnlyWhereTheRunSaysHow) {
  const TestFolder folder;
  TrainOptions options = balanced_options(folder, "asked");
  options.config->experts.balance_loss = true;
  options.steps = 1;
  EXPECT_EQ(train_one(options).error, "");
  options.out_folder = folder.file("none");
  options.expert_balance = 0;
  const RankOutcome none = train_one(options);
  EXPECT_EQ(none.error, "");
  ASSERT_EQ(none.steps.size(), 1u);
  EXPECT_FALSE(none.steps[0].experts->balance_loss);
  options.out_folder = folder.file("refused");
  options.expert_balance.reset();
  EXPECT_THAT(train_one(options).error, HasSubstr("give --expert-balance X"));
}

}  // namespace
}  // namespace jige::train
