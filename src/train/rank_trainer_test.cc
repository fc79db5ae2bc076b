// Runs on several ranks: the bits of one, in every way that changes who does what.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <limits>

#include "train/rank_test_support.h"

namespace jige::train {
namespace {

using ::testing::Each;
using ::testing::HasSubstr;

TEST(RankTrainer, GivesTheBitsOfOneRank) {
  const TestFolder folder;
  const TrainOptions one = rank_options(folder, "alone");
  const RankOutcome alone = train_one(one);
  ASSERT_EQ(alone.error, "");
  ASSERT_FALSE(alone.result.model_folder.empty());
  const std::string expected = saved_bytes(one);
  EXPECT_EQ(expected.find("none"), std::string::npos);
  int turn = 0;
  for (const Group& group : std::vector<Group>{{.size = 1},
                                               {.size = 2, .overlap = false},
                                               {.size = 3, .delays = true, .order = {1, 2, 0}},
                                               {.size = 4, .tcp = true, .order = {2, 0, 3, 1}},
                                               {.size = 7}}) {
    const int64_t micro_batch = turn % 2 == 0 ? 32 : 128;
    TrainOptions options = rank_options(folder, "ranks" + std::to_string(turn++));
    options.micro_batch_tokens = micro_batch;
    const std::string what = fmt::format("{} ranks, {} tokens", group.size, micro_batch);
    expect_alike(train_ranks(options, group), alone, what);
    EXPECT_EQ(saved_bytes(options), expected) << what;
  }
}

TEST(RankTrainer, GivesTheBitsOfOneRankWithTheSameMicroBatchesInBf16) {
  // Of 128 tokens there are two micro-batches in a step, fewer than ranks.
  for (const int64_t micro_batch : {32, 128}) {
    const TestFolder folder;
    TrainOptions one = rank_options(folder, "alone");
    one.compute = DType::kBF16;
    one.micro_batch_tokens = micro_batch;
    one.dropout = 0.2;
    const RankOutcome alone = train_one(one);
    ASSERT_EQ(alone.error, "");
    TrainOptions options = one;
    options.out_folder = folder.file("ranks");
    expect_alike(train_ranks(options, {.size = 3}), alone, "bf16");
    EXPECT_EQ(saved_bytes(options), saved_bytes(one));
    std::vector<std::string> states;
    for (const char* out : {"rings", "again"}) {
      options.out_folder = folder.file(out);
      for (const RankOutcome& rank :
           train_ranks(options, {.size = 3, .sum = GradientSum::kRings})) {
        ASSERT_EQ(rank.error, "");
        EXPECT_NEAR(rank.numbers.back(), alone.numbers.back(), 0.05);
      }
      states.push_back(saved_bytes(options));
    }
    EXPECT_EQ(states[0], states[1]);
  }
}

TEST(RankTrainer, HoldsWithExpertsAndAdaptersBesideThem) {
  const TestFolder folder;
  TrainOptions experts = rank_options(folder, "experts");
  experts.config = tiny_expert_config();
  experts.expert_balance = 0.1;
  const RankOutcome alone = train_one(experts);
  ASSERT_EQ(alone.error, "");
  TrainOptions options = experts;
  options.out_folder = folder.file("experts3");
  expect_alike(train_ranks(options, {.size = 3}), alone, "experts");
  EXPECT_EQ(saved_bytes(options), saved_bytes(experts));

  TrainOptions lora = tuning_options(rank_options(folder, "lora"), folder.file("experts/model"),
                                     folder.file("lora"));
  lora.lora = formats::LoraConfig{.rank = 4, .alpha = 8};
  lora.base_format = ops::WeightFormat::kQ8;
  const RankOutcome adapted = train_one(lora);
  ASSERT_EQ(adapted.error, "");
  options = lora;
  options.out_folder = folder.file("lora-2");
  expect_alike(train_ranks(options, {.size = 2}), adapted, "lora");
  EXPECT_EQ(saved_bytes(options), saved_bytes(lora));

  lora.lora->target_modules = {"q_proj", "w1"};
  lora.out_folder = folder.file("refused");
  EXPECT_NE(train_one(lora).error.find(
                "--lora-target: \"w1\" is no linear layer of a mixtral model; known are "
                "k_proj, o_proj, q_proj, v_proj"),
            std::string::npos);
}

TEST(RankTrainer, RefusesWhatOnlyTransformersDoesToRouters) {
  const TestFolder folder;
  TrainOptions options = rank_options(folder, "experts");
  options.config = tiny_expert_config();
  options.config->experts.jitter = 0.1;
  EXPECT_NE(train_one(options).error.find("\"router_jitter_noise\" asks for noise"),
            std::string::npos);
}

TEST(RankTrainer, HoldsWithTiedHeadsDropoutAdaptersAndClipping) {
  const TestFolder folder;
  TrainOptions tied = rank_options(folder, "tied");
  tied.config->tied_embeddings = true;
  tied.dropout = 0.3;
  tied.config->ffn_size = 96;
  tied.ffn_dropout = 0.3;
  tied.ffn_dropout_block = 32;
  tied.dropout_pool = 4;
  tied.dropout_at_once = 2;
  tied.optimizer.clip_norm = 0.05;
  const RankOutcome alone = train_one(tied);
  ASSERT_EQ(alone.error, "");
  TrainOptions options = tied;
  options.out_folder = folder.file("tied3");
  expect_alike(train_ranks(options, {.size = 3}), alone, "tied");
  EXPECT_EQ(saved_bytes(options), saved_bytes(tied));

  for (const auto format : {ops::WeightFormat::kCompute, ops::WeightFormat::kQ8}) {
    const std::string name = fmt::format("lora-{}", ops::weight_format_name(format));
    TrainOptions lora =
        tuning_options(rank_options(folder, name), folder.file("tied/model"), folder.file(name));
    lora.lora = formats::LoraConfig{.rank = 4, .alpha = 8};
    lora.base_format = format;
    lora.dropout = 0.2;
    lora.dropout_pool = 4;
    lora.dropout_at_once = 2;
    const RankOutcome adapted = train_one(lora);
    ASSERT_EQ(adapted.error, "");
    TrainOptions shared = lora;
    shared.out_folder = folder.file(name + "-2");
    expect_alike(train_ranks(shared, {.size = 2}), adapted, name);
    EXPECT_EQ(saved_bytes(shared), saved_bytes(lora));
  }
}

// The table's gradient takes the trees and may be there before the head's, which is to be added to
// it and takes the ring.
TEST(RankTrainer, WaitsForBothGradientsOfATiedTable) {
  const TestFolder folder;
  TrainOptions tied = rank_options(folder, "tied");
  tied.config->tied_embeddings = true;
  tied.steps = 12;
  const RankOutcome alone = train_one(tied);
  ASSERT_EQ(alone.error, "");
  const int64_t table_bytes = tied.config->vocab_size * tied.config->hidden_size * 4;
  TrainOptions options = tied;
  options.out_folder = folder.file("ranks");
  const Group group{.size = 7, .delays = true, .tree_bytes_max = table_bytes};
  expect_alike(train_ranks(options, group), alone, "trees");
  EXPECT_TRUE(saved_bytes(options) == saved_bytes(tied));
}

TEST(RankTrainer, GoesOnWithAnotherNumberOfRanks) {
  const TestFolder folder;
  TrainOptions whole = rank_options(folder, "whole");
  whole.steps = 6;
  const RankOutcome alone = train_one(whole);
  ASSERT_EQ(alone.error, "");
  TrainOptions parts = rank_options(folder, "parts");
  parts.steps = 6;
  parts.checkpoint_every_steps = 1;
  // Stops behind a step because one of them is told to, whichever it is.
  const auto stop_behind = [](int64_t step, int who) {
    return [=](int rank) {
      auto seen = std::make_shared<std::atomic<bool>>(false);
      TrainCallbacks callbacks;
      callbacks.on_step = [=](const StepInfo& info) { *seen = info.step >= step - 1; };
      callbacks.should_stop = [=] { return rank == who && *seen; };
      return callbacks;
    };
  };
  std::vector<double> numbers;
  const auto add = [&](const RankOutcome& part, int64_t steps_done, bool stopped) {
    ASSERT_EQ(part.error, "");
    EXPECT_EQ(part.result.steps_done, steps_done);
    EXPECT_EQ(part.result.stopped, stopped);
    numbers.insert(numbers.end(), part.numbers.begin(), part.numbers.end());
  };
  for (const RankOutcome& part : train_ranks(parts, {.size = 3}, stop_behind(2, 2))) {
    ASSERT_EQ(part.error, "");
    EXPECT_TRUE(part.result.stopped);
  }
  const auto first = train_one(parts, stop_behind(4, 0)(0));
  ASSERT_EQ(first.error, "");
  const auto second = train_ranks(parts, {.size = 2});
  add(second[0], 6, false);
  EXPECT_EQ(saved_bytes(parts), saved_bytes(whole));
  EXPECT_EQ(second[0].result.input_tokens, alone.result.input_tokens);
}

TEST(RankTrainer, AddsAlongTheRingsWithTheSameBitsEveryTime) {
  const TestFolder folder;
  const TrainOptions one = rank_options(folder, "alone");
  const RankOutcome alone = train_one(one);
  ASSERT_EQ(alone.error, "");
  std::vector<std::string> states;
  std::vector<std::vector<double>> numbers;
  for (const auto& [tcp, overlap] : {std::pair{false, false}, {false, true}, {true, true}}) {
    TrainOptions options = rank_options(folder, fmt::format("rings{}{}", tcp, overlap));
    const Group group{
        .size = 3, .sum = GradientSum::kRings, .overlap = overlap, .tcp = tcp, .delays = overlap};
    for (const RankOutcome& rank : train_ranks(options, group)) {
      ASSERT_EQ(rank.error, "");
      numbers.push_back(rank.numbers);
    }
    states.push_back(saved_bytes(options));
  }
  EXPECT_THAT(states, Each(states.front()));
  EXPECT_NE(states.front(), saved_bytes(one));  // another order of additions: so the relay's counts
  EXPECT_THAT(numbers, Each(numbers.front()));
  ASSERT_EQ(numbers.front().size(), alone.numbers.size());
  for (size_t i = 0; i < alone.numbers.size(); ++i) {
    EXPECT_NEAR(numbers.front()[i], alone.numbers[i], 1e-4 * std::abs(alone.numbers[i]));
  }
}

TEST(RankTrainer, WhoHasNoMicroBatchAddsNothingToTheRings) {
  const TestFolder folder;
  TrainOptions options = rank_options(folder, "alone");
  options.compute = DType::kBF16;
  options.micro_batch_tokens = options.step_tokens;  // one in each step
  options.data.eval_fraction = 0;
  options.steps = 2;
  const RankOutcome alone = train_one(options);
  ASSERT_EQ(alone.error, "");
  const std::string expected = saved_bytes(options);
  options.out_folder = folder.file("ranks");
  expect_alike(train_ranks(options, {.size = 3, .sum = GradientSum::kRings}), alone, "rings");
  EXPECT_TRUE(saved_bytes(options) == expected);
}

TEST(RankTrainer, SkipsAStepThatIsNotFiniteOnAllRanks) {
  const TestFolder folder;
  TrainOptions options = rank_options(folder, "bad");
  options.schedule.peak = 1e30;
  options.schedule.kind = ScheduleKind::kConstant;
  options.optimizer.clip_norm = 0;
  options.optimizer.bad_steps_in_row_max = 3;
  options.steps = 20;
  const auto ranks = train_ranks(options, {.size = 3});
  for (const RankOutcome& rank : ranks) {
    EXPECT_THAT(rank.error, HasSubstr("training diverged: 3 steps in a row"));
    ASSERT_GE(rank.steps.size(), 3u);
    EXPECT_TRUE(rank.steps.back().skipped);
    EXPECT_EQ(rank.steps.size(), ranks[0].steps.size());
  }
}

TEST(RankTrainer, EndsWhenARankFailsOrDiffersAndNamesIt) {
  const TestFolder folder;
  const auto differs = train_ranks(rank_options(folder, "differs"), {.size = 3}, nullptr,
                                   [](int rank, TrainOptions& options) {
                                     if (rank == 1) options.seed = 77;
                                   });
  for (const RankOutcome& rank : differs) {
    EXPECT_THAT(rank.error, HasSubstr("data or options differ on rank 1 (thread)"));
  }
  const auto measured = train_ranks(
      rank_options(folder, "measured"), {.size = 2}, nullptr, [&](int rank, TrainOptions& options) {
        options.data.eval_files = {folder.write(std::to_string(rank) + ".txt",
                                                rank == 0 ? "what is measured" : "another text")};
      });
  for (const RankOutcome& rank : measured) {
    EXPECT_THAT(rank.error, HasSubstr("data or options differ on rank 1 (thread)"));
  }
  // Another folder, where a rank finds no data.
  TrainOptions options = rank_options(folder, "failed");
  const auto failed = train_ranks(options, {.size = 3}, nullptr, [&](int rank, TrainOptions& own) {
    if (rank == 2) own.data.files = {folder.file("missing.jsonl")};
  });
  EXPECT_THAT(failed[2].error, HasSubstr("missing.jsonl"));
  for (const size_t r : {0, 1}) {
    EXPECT_THAT(failed[r].error, HasSubstr("rank 2 (thread)"));
    EXPECT_THAT(failed[r].error, HasSubstr("missing.jsonl"));
  }
}

TEST(RankTrainer, KnowsItsMemoryAndWhatItSaysOfRanks) {
  const TestFolder folder;
  const TrainOptions options = rank_options(folder, "log");
  std::vector<TrainPlan> plans(2);
  const auto ranks = train_ranks(options, {.size = 2}, [&](int rank) {
    TrainCallbacks callbacks;
    callbacks.on_plan = [&plans, rank](const TrainPlan& plan) {
      plans[static_cast<size_t>(rank)] = plan;
    };
    return callbacks;
  });
  ASSERT_EQ(ranks[0].error, "");
  for (size_t r = 0; r < 2; ++r) {
    EXPECT_EQ(ranks[r].result.memory.arena_peak_bytes,
              ranks[r].result.memory.arena_predicted_bytes);
    EXPECT_EQ(plans[r].rank_count, 2);
    EXPECT_GT(plans[r].stream_bytes, 0);
    for (const StepInfo& info : ranks[r].steps) {
      EXPECT_GT(info.ranks.sent_bytes, 0);
      EXPECT_GE(info.ranks.wait_max_s, info.ranks.wait_s);
    }
  }
  EXPECT_TRUE(ranks[1].result.model_folder.empty());
  EXPECT_EQ(ranks[1].result.steps_done, 4);

  TrainOptions small = rank_options(folder, "small");
  small.memory_limit_bytes = plans[0].memory_predicted_bytes * 3 / 2;
  for (const RankOutcome& rank : train_ranks(small, {.size = 2})) {
    EXPECT_THAT(rank.error, HasSubstr("on each of 2 ranks here"));
  }
  TrainOptions piped = rank_options(folder, "piped");
  piped.pipeline = PipelineOptions{.devices = 2};
  for (const RankOutcome& rank : train_ranks(piped, {.size = 2})) {
    EXPECT_THAT(rank.error, HasSubstr("give ranks or devices"));
  }
}

}  // namespace
}  // namespace jige::train
