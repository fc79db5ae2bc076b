// Whole runs whose moments are codes of 8 bits: all that holds with f32 holds with them.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <memory>

#include "train/rank_test_support.h"

namespace jige::train {
namespace {

using ::testing::HasSubstr;

TrainOptions q8_options(const TestFolder& folder, const std::string& out) {
  TrainOptions options = rank_options(folder, out);
  options.optimizer.moments = ops::MomentFormat::kQ8;
  return options;
}

// One rank has three threads.
const std::vector<Group> kSomeGroups = {{.size = 1}, {.size = 3}, {.size = 2, .shard = true}};
const std::vector<Group> kManyGroups = {
    {.size = 1}, {.size = 2}, {.size = 3, .shard = true}, {.size = 7, .shard = true}};

// Runs with the same options by one process and several ranks, with several threads and, in turn,
// these micro-batches.
void expect_one_result(const TrainOptions& one, const std::vector<int64_t>& micro_batches,
                       const std::vector<Group>& groups) {
  const RankOutcome alone = train_one(one);
  ASSERT_EQ(alone.error, "");
  EXPECT_EQ(alone.result.memory.arena_peak_bytes, alone.result.memory.arena_predicted_bytes);
  const std::string expected = saved_bytes(one);
  EXPECT_EQ(expected.find("none"), std::string::npos);
  size_t turn = 0;
  for (const Group& group : groups) {
    TrainOptions options = one;
    options.micro_batch_tokens = micro_batches[turn % micro_batches.size()];
    options.out_folder = one.out_folder + fmt::format("-{}", turn++);
    options.thread_count = group.size == 1 ? 3 : 1;
    const std::string what = fmt::format("{} ranks, {} tokens, divided: {}", group.size,
                                         options.micro_batch_tokens, group.shard);
    const std::vector<RankOutcome> ranks = train_ranks(options, group);
    expect_alike(ranks, alone, what);
    for (const RankOutcome& rank : ranks) {
      EXPECT_EQ(rank.result.memory.arena_peak_bytes, rank.result.memory.arena_predicted_bytes);
    }
    EXPECT_TRUE(saved_bytes(options) == expected) << what;
  }
}

TEST(Moments, OfEightBitsGiveTheBitsOfOneRankForAnyRanksThreadsAndMicroBatches) {
  const TestFolder folder;
  expect_one_result(q8_options(folder, "whole"), {32, 128}, kManyGroups);
  TrainOptions tied = q8_options(folder, "tied");
  tied.config->tied_embeddings = true;
  tied.config->ffn_size = 50;  // rows of packed forms and blocks end elsewhere
  tied.optimizer.clip_norm = 0.05;
  tied.dropout = 0.2;
  expect_one_result(tied, {64}, kManyGroups);
}

TEST(Moments, OfEightBitsHoldForAdaptersAndPreferences) {
  const TestFolder folder;
  const TrainOptions base = q8_options(folder, "base");
  ASSERT_EQ(train_one(base).error, "");
  TrainOptions lora =
      tuning_options(q8_options(folder, "lora"), folder.file("base/model"), folder.file("lora"));
  lora.lora = formats::LoraConfig{.rank = 4, .alpha = 8};
  expect_one_result(lora, {64}, kSomeGroups);
  lora.base_format = ops::WeightFormat::kQ4;
  lora.out_folder = folder.file("lora-q4");
  expect_one_result(lora, {64}, kSomeGroups);

  TrainOptions dpo =
      tuning_options(q8_options(folder, "dpo"), folder.file("base/model"), folder.file("dpo"));
  dpo.data.files = {folder.write("pairs.jsonl", small_pairs(60))};
  dpo.dpo = {.beta = 0.3};
  expect_one_result(dpo, {64, 100}, kSomeGroups);
}

TEST(Moments, OfEightBitsGoOnWithAnotherNumberOfRanksDividedOrNot) {
  const TestFolder folder;
  TrainOptions whole = q8_options(folder, "whole");
  whole.steps = 7;
  ASSERT_EQ(train_one(whole).error, "");
  TrainOptions parts = whole;
  parts.out_folder = folder.file("parts");
  const std::vector<Group> groups = {
      {.size = 3, .shard = true}, {.size = 1}, {.size = 2}, {.size = 4, .shard = true}};
  int64_t steps = 0;
  for (const Group& group : groups) {
    steps += 2;
    const auto ranks = train_ranks(parts, group, [steps](int) {
      auto seen = std::make_shared<std::atomic<int64_t>>(0);
      TrainCallbacks callbacks;
      callbacks.on_step = [=](const StepInfo& info) { *seen = info.step; };
      callbacks.should_stop = [=] { return *seen + 1 >= steps; };
      return callbacks;
    });
    for (const RankOutcome& rank : ranks) ASSERT_EQ(rank.error, "");
  }
  EXPECT_TRUE(saved_bytes(parts) == saved_bytes(whole));
}

TEST(Moments, OfEightBitsLearnAsF32Do) {
  const TestFolder folder;
  std::vector<RankOutcome> outcomes;
  std::vector<model::TrainingMemory> plans;
  for (const auto format : {ops::MomentFormat::kF32, ops::MomentFormat::kQ8}) {
    TrainOptions options =
        rank_options(folder, fmt::format("out-{}", ops::moment_format_name(format)));
    options.optimizer.moments = format;
    options.steps = 60;
    TrainCallbacks callbacks;
    callbacks.on_plan = [&](const TrainPlan& plan) { plans.push_back(plan.memory); };
    outcomes.push_back(train_one(options, callbacks));
    ASSERT_EQ(outcomes.back().error, "");
  }
  ASSERT_EQ(outcomes[0].numbers.size(), outcomes[1].numbers.size());
  EXPECT_EQ(outcomes[0].numbers.front(), outcomes[1].numbers.front());
  EXPECT_NE(outcomes[0].numbers.back(), outcomes[1].numbers.back());
  EXPECT_LT(outcomes[0].numbers.back(), outcomes[0].numbers.front() * 0.6);
  EXPECT_NEAR(outcomes[0].numbers.back(), outcomes[1].numbers.back(),
              0.02 * outcomes[0].numbers.back());
  EXPECT_LT(plans[1].moments_bytes, plans[0].moments_bytes * 3 / 10);
  EXPECT_EQ(plans[0].weights.total_bytes(), plans[1].weights.total_bytes());
}

TEST(Moments, OfEightBitsAreBlocksInACheckpoint) {
  const TestFolder folder;
  const TrainOptions options = q8_options(folder, "out");
  ASSERT_EQ(train_one(options).error, "");
  const auto checkpoint =
      formats::CheckpointReader::open_latest(options.out_folder + "/checkpoints");
  ASSERT_TRUE(checkpoint);
  EXPECT_EQ(checkpoint->state()["identity"]["optimizer"]["moments"], "q8");
  for (const char* file : {kCheckpointMoments1, kCheckpointMoments2}) {
    const auto table = checkpoint->tensor(file, "model.embed_tokens.weight");
    ASSERT_TRUE(table);
    EXPECT_EQ(table->dtype, DType::kU8);
    EXPECT_EQ(table->shape, (Shape{kTestVocab * 32 / 128, 132}));
    const auto norm = checkpoint->tensor(file, "model.norm.weight");
    ASSERT_TRUE(norm);
    EXPECT_EQ(norm->dtype, DType::kF32);
  }
}

TEST(Moments, OfAnotherFormatThanTheCheckpointsAreRefused) {
  const TestFolder folder;
  for (const auto format : {ops::MomentFormat::kF32, ops::MomentFormat::kQ8}) {
    const bool wide = format == ops::MomentFormat::kF32;
    TrainOptions options = rank_options(folder, wide ? "wide" : "narrow");
    options.optimizer.moments = format;
    options.steps = 2;
    ASSERT_EQ(train_one(options).error, "");
    options.optimizer.moments = wide ? ops::MomentFormat::kQ8 : ops::MomentFormat::kF32;
    const char* was = wide ? "f32" : "q8";
    const char* is = wide ? "q8" : "f32";
    EXPECT_THAT(train_one(options).error,
                HasSubstr(fmt::format("was made with --moments {}, this run has --moments {}; "
                                      "continue with --moments {}, or start anew",
                                      was, is, was)));
  }
}

TEST(Moments, OfEightBitsAreRefusedInAPipelineAndNamedWhereMemoryIsShort) {
  const TestFolder folder;
  TrainOptions piped = q8_options(folder, "piped");
  piped.pipeline = PipelineOptions{.devices = 2};
  const Status status = validate(piped);
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, Code::kUnsupported);
  EXPECT_THAT(status.error().message,
              HasSubstr("--moments q8 with a pipeline of devices (--devices, --plan) is not "
                        "supported yet: give one of them, or --moments f32"));
  TrainOptions small = rank_options(folder, "small");
  small.memory_limit_bytes = 1 << 20;
  EXPECT_THAT(train_one(small).error, HasSubstr(", or --moments q8"));
  small.optimizer.moments = ops::MomentFormat::kQ8;
  EXPECT_THAT(train_one(small).error, ::testing::Not(HasSubstr("--moments")));
}

}  // namespace
}  // namespace jige::train
