// Runs in which ranks have every sequence together: the bits of one rank, whatever is divided how.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <memory>

#include "train/rank_test_support.h"

namespace jige::train {
namespace {

using ::testing::HasSubstr;

TrainOptions split_options(const TestFolder& folder, const std::string& out) {
  TrainOptions options = rank_options(folder, out);
  options.steps = 2;
  return options;
}

// Of one rank with `options`, and of groups that divide its sequences.
void expect_bits_of_one(const TestFolder& folder, const TrainOptions& options,
                        const std::vector<Group>& groups, const std::string& name) {
  const RankOutcome alone = train_one(options);
  ASSERT_EQ(alone.error, "") << name;
  const std::string expected = saved_bytes(options);
  int turn = 0;
  for (Group group : groups) {
    group.split = true;
    TrainOptions own = options;
    own.out_folder = folder.file(fmt::format("{}-split-{}", name, turn++));
    const std::string what = fmt::format("{}, {} ranks", name, group.size);
    const std::vector<RankOutcome> ranks = train_ranks(own, group);
    expect_alike(ranks, alone, what);
    EXPECT_EQ(saved_bytes(own), expected) << what;
    for (const RankOutcome& rank : ranks) {
      EXPECT_EQ(rank.result.memory.arena_peak_bytes, rank.result.memory.arena_predicted_bytes)
          << what;
    }
  }
}

TEST(ContextTrainer, GivesTheBitsOfOneRank) {
  const TestFolder folder;
  TrainOptions options = split_options(folder, "alone");
  expect_bits_of_one(folder, options,
                     {{.size = 2, .overlap = false},
                      {.size = 3, .delays = true},
                      {.size = 4, .tcp = true, .order = {2, 0, 3, 1}},
                      {.size = 7}},
                     "documents");
  options.out_folder = folder.file("alone-stream");
  options.data.packing = Packing::kStream;
  options.context = 61;
  options.micro_batch_tokens = 61;
  expect_bits_of_one(folder, options, {{.size = 2}, {.size = 3, .shard = true}}, "stream");
}

TEST(ContextTrainer, HoldsWithTiedHeadsClippingAdaptersAndMomentsOfEightBits) {
  const TestFolder folder;
  TrainOptions tied = split_options(folder, "tied");
  tied.config->tied_embeddings = true;
  tied.optimizer.clip_norm = 0.05;
  tied.optimizer.moments = ops::MomentFormat::kQ8;
  expect_bits_of_one(folder, tied, {{.size = 3}, {.size = 2, .shard = true}}, "tied");

  TrainOptions lora =
      tuning_options(split_options(folder, "lora"), folder.file("tied/model"), folder.file("lora"));
  lora.lora = formats::LoraConfig{.rank = 4, .alpha = 8};
  lora.base_format = ops::WeightFormat::kQ8;
  expect_bits_of_one(folder, lora, {{.size = 2}}, "lora");
}

TEST(ContextTrainer, GoesOnWithOthersAndInOtherWays) {
  const TestFolder folder;
  TrainOptions whole = rank_options(folder, "whole");
  whole.steps = 6;
  const RankOutcome alone = train_one(whole);
  ASSERT_EQ(alone.error, "");
  TrainOptions parts = whole;
  parts.out_folder = folder.file("parts");
  const auto stop_behind = [](int64_t step) {
    return [step](int rank) {
      auto seen = std::make_shared<std::atomic<bool>>(false);
      TrainCallbacks callbacks;
      callbacks.on_step = [=](const StepInfo& info) { *seen = info.step >= step - 1; };
      callbacks.should_stop = [=] { return rank == 0 && *seen; };
      return callbacks;
    };
  };
  int64_t steps = 0;
  for (const Group& group :
       {Group{.size = 3, .split = true}, Group{.size = 2}, Group{.size = 2, .split = true}}) {
    steps += 2;
    for (const RankOutcome& part : train_ranks(parts, group, stop_behind(steps))) {
      ASSERT_EQ(part.error, "");
      ASSERT_EQ(part.result.steps_done, steps);
    }
  }
  EXPECT_EQ(saved_bytes(parts), saved_bytes(whole));
}

TEST(ContextTrainer, GivesTheBitsOfOneRankWithTheSameMicroBatchesInBf16) {
  const TestFolder folder;
  TrainOptions options = split_options(folder, "alone");
  options.compute = DType::kBF16;
  options.data.packing = Packing::kStream;
  options.config->context_max = options.context = 180;
  options.micro_batch_tokens = options.step_tokens = 370;
  options.steps = 2;
  expect_bits_of_one(folder, options, {{.size = 2}, {.size = 3, .shard = true}}, "bf16");
}

TEST(ContextTrainer, RefusesWhatIsNotDivided) {
  const TestFolder folder;
  const auto refusal = [&](const std::function<void(TrainOptions&)>& change, Group group = {}) {
    TrainOptions options = split_options(folder, "refused");
    change(options);
    group.split = true;
    return train_ranks(options, group)[0].error;
  };
  const auto as_it_is = [](TrainOptions&) {};
  EXPECT_THAT(refusal([](TrainOptions& options) { options.dropout = 0.1; }),
              HasSubstr("--split-context with --dropout is not supported yet"));
  EXPECT_THAT(refusal([](TrainOptions& options) { options.pipeline = PipelineOptions{}; }),
              HasSubstr("--split-context with --devices"));
  EXPECT_THAT(refusal([](TrainOptions& options) { options.gpus = {0}; }),
              HasSubstr("--split-context with --device cuda"));
  EXPECT_THAT(refusal([](TrainOptions& options) { options.dpo = DpoOptions{}; }),
              HasSubstr("--split-context with --dpo"));
  EXPECT_THAT(refusal([](TrainOptions& options) { options.grpo = GrpoOptions{}; }),
              HasSubstr("--split-context with --grpo"));
  EXPECT_THAT(refusal(as_it_is, {.sum = GradientSum::kRings}),
              HasSubstr("leave --gradient-sum rings out"));
  EXPECT_THAT(refusal([](TrainOptions& options) { options.config = tiny_expert_config(); }),
              HasSubstr("--split-context divides sequences among ranks, and a mixtral model has "
                        "experts"));
}

TEST(ContextTrainer, EndsWhereRanksDivideDifferently) {
  const TestFolder folder;
  const auto ranks = train_ranks(
      split_options(folder, "differs"), {.size = 2, .split = true}, nullptr,
      [](int rank, TrainOptions& options) { options.ranks->split_context = rank == 0; });
  for (const RankOutcome& rank : ranks) {
    EXPECT_THAT(rank.error, HasSubstr("data or options differ on rank 1 (thread)"));
  }
}

}  // namespace
}  // namespace jige::train
