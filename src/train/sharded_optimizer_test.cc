// Runs whose optimizer state is divided among ranks: the bits of those in which every rank has all.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <filesystem>

#include "train/optimizer_shares.h"
#include "train/rank_test_support.h"

namespace jige::train {
namespace {

using ::testing::HasSubstr;

// The rule of optimizer_shares.h, element by element.
TEST(OptimizerShares, GiveEveryElementToOneRank) {
  for (const int64_t width : {1, 16, 17, 100}) {
    const model::ParamSpec table{.name = "table", .shape = {7, width}};
    const model::ParamSpec vector{.name = "vector", .shape = {width}};
    const model::ParamSpec matrix{.name = "matrix", .shape = {3, 5 * width}};
    const std::vector<model::NamedParam> params = {{.spec = &table, .node = 0},
                                                   {.spec = &vector, .node = 2},
                                                   {.spec = &matrix, .node = 2},
                                                   {.spec = &vector, .node = 2}};
    for (const int ranks : {1, 2, 3, 4, 7, 61}) {
      const OptimizerShares shares(params, ranks);
      std::vector<int64_t> held(static_cast<size_t>(ranks));
      for (size_t i = 0; i < params.size(); ++i) {
        std::vector<int> owners(static_cast<size_t>(params[i].spec->shape.count()));
        for (int rank = 0; rank < ranks; ++rank) {
          const ElementRange part = shares.of_param(i, rank);
          const ElementRange node = shares.of_node(params[i].node, rank);
          held[static_cast<size_t>(rank)] += part.count;
          for (int64_t e = part.begin; e < part.end(); ++e) ++owners[static_cast<size_t>(e)];
          if (part.count == 0) continue;
          EXPECT_GE(shares.begin_of(i) + part.begin, node.begin);
          EXPECT_LE(shares.begin_of(i) + part.end(), node.end());
        }
        EXPECT_THAT(owners, ::testing::Each(1)) << width << " wide, " << ranks << " ranks";
      }
      EXPECT_EQ(shares.of_node(0, 0).begin, 0);
      for (const size_t node : {0, 2}) {
        for (int rank = 1; rank < ranks; ++rank) {
          EXPECT_EQ(shares.of_node(node, rank).begin, shares.of_node(node, rank - 1).end());
          EXPECT_LE(shares.of_node(node, rank).count, shares.of_node(node, 0).count);
        }
      }
      EXPECT_EQ(shares.of_node(1, 0).count, 0);
    }
  }
}

// Cut at borders of blocks from the parameter's first element on, where it has blocks.
TEST(OptimizerShares, CutNoBlockOfMoments) {
  for (const int64_t width : {16, 100, 129}) {
    const model::ParamSpec vector{.name = "vector", .shape = {width}};
    const model::ParamSpec matrix{.name = "matrix", .shape = {9, width}};
    const model::ParamSpec small{.name = "small", .shape = {3, 5}};
    const std::vector<model::NamedParam> params = {{.spec = &vector, .node = 1},
                                                   {.spec = &matrix, .node = 1},
                                                   {.spec = &small, .node = 1},
                                                   {.spec = &matrix, .node = 1},
                                                   {.spec = &matrix, .node = 2}};
    for (const int ranks : {1, 2, 3, 4, 7, 61}) {
      const OptimizerShares shares(params, ranks, ops::MomentFormat::kQ8);
      for (size_t i = 0; i < params.size(); ++i) {
        const bool blocks = params[i].spec == &matrix;
        int64_t next = 0;
        for (int rank = 0; rank < ranks; ++rank) {
          const ElementRange part = shares.of_param(i, rank);
          if (part.count == 0) continue;
          EXPECT_EQ(part.begin, next);
          EXPECT_EQ(part.begin % (blocks ? 128 : 16), 0) << width << ", " << ranks << " ranks";
          next = part.end();
        }
        EXPECT_EQ(next, params[i].spec->shape.count());
      }
      for (const size_t node : {1, 2}) {
        for (int rank = 1; rank < ranks; ++rank) {
          EXPECT_EQ(shares.of_node(node, rank).begin, shares.of_node(node, rank - 1).end());
          EXPECT_GE(shares.of_node(node, rank).count, 0);
        }
      }
    }
  }
}

TEST(ShardedOptimizer, GivesTheBitsOfOneRank) {
  const TestFolder folder;
  TrainOptions one = rank_options(folder, "alone");
  one.config->vocab_size += 3;  // no number of ranks divides it
  const RankOutcome alone = train_one(one);
  ASSERT_EQ(alone.error, "");
  const std::string expected = saved_bytes(one);
  EXPECT_EQ(expected.find("none"), std::string::npos);
  int turn = 0;
  for (const Group& group :
       std::vector<Group>{{.size = 2, .overlap = false, .shard = true},
                          {.size = 3, .shard = true, .delays = true, .order = {1, 2, 0}},
                          {.size = 4,
                          .shard = true,
                          .tcp = true,
                          .delays = true,
                          .order = {2, 0, 3, 1},
                          .tree_bytes_max = 4096},
                          {.size = 7, .shard = true}}) {
    const int64_t micro_batch = turn % 2 == 0 ? 32 : 128;
    TrainOptions options = one;
    options.out_folder = folder.file("ranks" + std::to_string(turn++));
    options.micro_batch_tokens = micro_batch;
    const std::string what = fmt::format("{} ranks, {} tokens", group.size, micro_batch);
    expect_alike(train_ranks(options, group), alone, what);
    EXPECT_TRUE(saved_bytes(options) == expected) << what;
  }
}

// Along the rings the bits depend on the number of ranks, and not on who has the moments.
TEST(ShardedOptimizer, GivesTheBitsOfTheSameRings) {
  const TestFolder folder;
  for (const int size : {2, 3}) {
    const TrainOptions whole = rank_options(folder, fmt::format("whole{}", size));
    const Group group{.size = size, .sum = GradientSum::kRings};
    const auto all = train_ranks(whole, group);
    ASSERT_EQ(all[0].error, "");
    TrainOptions options = whole;
    options.out_folder = folder.file(fmt::format("divided{}", size));
    Group divided = group;
    divided.shard = true;
    expect_alike(train_ranks(options, divided), all[0], "rings");
    EXPECT_TRUE(saved_bytes(options) == saved_bytes(whole)) << size;
  }
}

TEST(ShardedOptimizer, HoldsInBf16WithTiedHeadsDropoutClippingAndFewMicroBatches) {
  for (const int64_t micro_batch : {32, 128}) {
    const TestFolder folder;
    TrainOptions one = rank_options(folder, "alone");
    one.compute = DType::kBF16;
    one.micro_batch_tokens = micro_batch;
    one.config->tied_embeddings = true;
    one.dropout = 0.3;
    one.optimizer.clip_norm = 0.05;
    const RankOutcome alone = train_one(one);
    ASSERT_EQ(alone.error, "");
    for (const GradientSum sum : {GradientSum::kRelay, GradientSum::kRings}) {
      if (sum == GradientSum::kRings && micro_batch < 128) continue;  // of ranks without any
      TrainOptions options = one;
      options.out_folder = folder.file(fmt::format("ranks-{}", gradient_sum_name(sum)));
      const auto ranks = train_ranks(options, {.size = 3, .sum = sum, .shard = true});
      ASSERT_EQ(ranks[0].error, "");
      if (sum == GradientSum::kRings) continue;  // other bits; compared to themselves above
      expect_alike(ranks, alone, "bf16");
      EXPECT_TRUE(saved_bytes(options) == saved_bytes(one));
    }
  }
}

TEST(ShardedOptimizer, HoldsWithExpertsAndAdapters) {
  const TestFolder folder;
  TrainOptions experts = rank_options(folder, "experts");
  experts.config = tiny_expert_config();
  const RankOutcome alone = train_one(experts);
  ASSERT_EQ(alone.error, "");
  TrainOptions options = experts;
  options.out_folder = folder.file("experts3");
  expect_alike(train_ranks(options, {.size = 3, .shard = true}), alone, "experts");
  EXPECT_TRUE(saved_bytes(options) == saved_bytes(experts));

  for (const auto format : {ops::WeightFormat::kCompute, ops::WeightFormat::kQ8}) {
    const std::string name = fmt::format("adapter-{}", ops::weight_format_name(format));
    TrainOptions lora =
        tuning_options(rank_options(folder, name), folder.file("experts/model"), folder.file(name));
    lora.lora = formats::LoraConfig{.rank = 3, .alpha = 8};
    lora.lora->use_dora = format == ops::WeightFormat::kCompute;  // refused with the others
    lora.base_format = format;
    const RankOutcome adapted = train_one(lora);
    ASSERT_EQ(adapted.error, "");
    options = lora;
    options.out_folder = folder.file(name + "-4");
    expect_alike(train_ranks(options, {.size = 4, .shard = true}), adapted, name);
    EXPECT_TRUE(saved_bytes(options) == saved_bytes(lora)) << name;
  }
}

TrainCallbacks stopping_behind(int64_t step) {
  auto seen = std::make_shared<std::atomic<bool>>(false);
  TrainCallbacks callbacks;
  callbacks.on_step = [=](const StepInfo& info) { *seen = info.step >= step - 1; };
  callbacks.should_stop = [=] { return seen->load(); };
  return callbacks;
}

TEST(ShardedOptimizer, GoesOnWithAnotherNumberOfRanksDividedOrNot) {
  const TestFolder folder;
  TrainOptions whole = rank_options(folder, "whole");
  whole.steps = 10;
  const RankOutcome alone = train_one(whole);
  ASSERT_EQ(alone.error, "");
  TrainOptions parts = whole;
  parts.out_folder = folder.file("parts");
  const auto go_on = [&](const Group& group, int64_t stop_behind) {
    const auto ranks = train_ranks(parts, group, [&](int) { return stopping_behind(stop_behind); });
    for (const RankOutcome& rank : ranks) {
      ASSERT_EQ(rank.error, "");
      EXPECT_EQ(rank.result.steps_done, std::min<int64_t>(stop_behind, 10));
    }
  };
  // Ranks ask in the midst of a step, so the one that is told to stop is the one behind.
  go_on({.size = 3, .shard = true}, 2);
  go_on({.size = 1}, 3);
  go_on({.size = 2, .shard = true}, 5);
  go_on({.size = 4}, 7);
  go_on({.size = 4, .shard = true}, 9);
  go_on({.size = 2, .shard = true}, 100);
  go_on({.size = 3, .shard = true}, 100);  // nothing is left to do
  EXPECT_TRUE(saved_bytes(parts) == saved_bytes(whole));
}

// Every checkpoint is that of one rank, also where the clock of rank 0 alone says when.
TEST(ShardedOptimizer, WritesTheCheckpointsOfOneRank) {
  const TestFolder folder;
  TrainOptions one = rank_options(folder, "alone");
  one.steps = 6;
  one.checkpoints_kept = 10;
  one.checkpoint_every_steps = 2;
  ASSERT_EQ(train_one(one).error, "");
  TrainOptions options = one;
  options.out_folder = folder.file("ranks");
  options.checkpoint_every_steps = 0;
  options.checkpoint_every_seconds = 1e-9;
  for (const RankOutcome& rank : train_ranks(options, {.size = 3, .shard = true})) {
    ASSERT_EQ(rank.error, "");
  }
  for (const int step : {2, 4, 6}) {
    for (const char* name : {"params", "adam_m", "adam_v"}) {
      const std::string file = fmt::format("/checkpoints/step-{:08}/{}.safetensors", step, name);
      const auto expected = read_file(one.out_folder + file);
      const auto written = read_file(options.out_folder + file);
      ASSERT_TRUE(expected && written) << file;
      EXPECT_TRUE(*expected == *written) << file;
    }
  }
}

// The others are in the midst of sending when rank 0 finds that it cannot write.
TEST(ShardedOptimizer, EndsOnAllRanksWhereACheckpointCannotBeWrittenAndGoesOnFromTheOneBefore) {
  const TestFolder folder;
  TrainOptions whole = rank_options(folder, "whole");
  whole.steps = 6;
  ASSERT_EQ(train_one(whole).error, "");
  TrainOptions options = rank_options(folder, "ranks");
  options.steps = 6;
  options.checkpoint_every_steps = 2;
  const std::string checkpoints = options.out_folder + "/checkpoints";
  const std::string kept = folder.file("kept");
  const auto ranks = train_ranks(options, {.size = 3, .shard = true}, [&](int rank) {
    TrainCallbacks callbacks;
    if (rank != 0) return callbacks;
    callbacks.on_step = [&](const StepInfo& info) {
      if (info.step != 4) return;
      std::filesystem::rename(checkpoints, kept);
      folder.write("ranks/checkpoints", "no folder");
    };
    return callbacks;
  });
  for (const RankOutcome& rank : ranks) {
    EXPECT_THAT(rank.error, HasSubstr("the checkpoint of step 4 was not written"));
  }
  std::filesystem::remove(checkpoints);
  std::filesystem::rename(kept, checkpoints);
  const auto again = train_ranks(options, {.size = 2, .shard = true});
  ASSERT_EQ(again[0].error, "");
  ASSERT_FALSE(again[0].steps.empty());
  EXPECT_EQ(again[0].steps.front().step, 3);
  EXPECT_TRUE(saved_bytes(options) == saved_bytes(whole));
}

TEST(ShardedOptimizer, KeepsValuesWholeBehindAStepThatIsNotFinite) {
  const TestFolder folder;
  TrainOptions options = rank_options(folder, "alone");
  options.config = tiny_biased_config();
  options.expert_bias_rate = 0.01;
  options.schedule.peak = 1e30;
  options.schedule.kind = ScheduleKind::kConstant;
  options.optimizer.clip_norm = 0;
  options.optimizer.bad_steps_in_row_max = 3;
  options.steps = 20;
  options.checkpoint_every_steps = 1;
  const auto last_state = [&] {
    const auto last = formats::CheckpointReader::open_latest(options.out_folder + "/checkpoints");
    EXPECT_TRUE(last) << last.error().message;
    return RunState::from_json(last->state().at("run"), last->folder());
  };
  const RankOutcome alone = train_one(options);
  const auto state = last_state();
  const std::string expected = saved_bytes(options);
  ASSERT_TRUE(state);
  EXPECT_EQ(state->bad_steps_in_row, 2);
  options.out_folder = folder.file("ranks");
  const auto ranks = train_ranks(options, {.size = 3, .shard = true});
  for (const RankOutcome& rank : ranks) {
    EXPECT_EQ(rank.error, alone.error);
    ASSERT_EQ(rank.steps.size(), alone.steps.size());
    EXPECT_TRUE(rank.steps.back().skipped);
  }
  EXPECT_EQ(last_state()->update_count, state->update_count);
  EXPECT_TRUE(saved_bytes(options) == expected);
}

TEST(ShardedOptimizer, TakesTheMemoryThatWasPlanned) {
  const TestFolder folder;
  for (const DType compute : {DType::kF32, DType::kBF16}) {
    for (const int size : compute == DType::kF32 ? std::vector<int>{2, 4} : std::vector<int>{3}) {
      std::vector<model::TrainingMemory> plans(static_cast<size_t>(size));
      const auto peaks = [&](bool shard) {
        TrainOptions options = rank_options(folder, fmt::format("run{}{}", size, shard));
        options.compute = compute;
        options.steps = 2;
        options.resume = ResumeMode::kNever;
        options.out_folder += dtype_info(compute).name;
        std::vector<int64_t> bytes;
        const auto ranks = train_ranks(options, {.size = size, .shard = shard}, [&](int rank) {
          TrainCallbacks callbacks;
          callbacks.on_plan = [&plans, rank](const TrainPlan& plan) {
            plans[static_cast<size_t>(rank)] = plan.memory;
          };
          return callbacks;
        });
        for (const RankOutcome& rank : ranks) {
          EXPECT_EQ(rank.error, "");
          EXPECT_EQ(rank.result.memory.arena_peak_bytes, rank.result.memory.arena_predicted_bytes);
          bytes.push_back(rank.result.memory.arena_peak_bytes);
        }
        return bytes;
      };
      const std::vector<int64_t> whole = peaks(false);
      const model::TrainingMemory all = plans[0];
      const std::vector<int64_t> divided = peaks(true);
      int64_t moments = 0;
      for (size_t r = 0; r < plans.size(); ++r) {
        // Masters of matrices have no other memory than a share, and moments none but a share.
        EXPECT_LT(divided[r], whole[r] - all.moments_bytes * (size - 1) / size);
        EXPECT_EQ(plans[r].total_bytes(), divided[r]);
        EXPECT_LT(plans[r].weights.values_bytes, all.weights.values_bytes);
        moments += plans[r].moments_bytes;
      }
      EXPECT_GE(moments, all.moments_bytes);
      EXPECT_LE(moments, all.moments_bytes + 4096 * size);  // parts in whole cache lines
    }
  }
}

TEST(ShardedOptimizer, MustBeAskedForOnAllRanks) {
  const TestFolder folder;
  for (const RankOutcome& rank : train_ranks(
           rank_options(folder, "differs"), {.size = 3}, nullptr,
           [](int rank, TrainOptions&options) { options.ranks->shard_optimizer = rank == 1; })) {
    EXPECT_THAT(rank.error, HasSubstr("data or options differ on rank 1 (thread)"));
  }
}

}  // namespace
}  // namespace jige::train
