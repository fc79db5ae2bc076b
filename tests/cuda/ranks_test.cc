// Runs on several ranks that compute on GPUs, or all on one: the bits of one, however late copies
// are.
#include <gmock/gmock.h>

#include <array>
#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "cuda/test_device.h"
#include "train/preference_run_test_support.h"
#include "train/rank_test_support.h"

namespace jige {
namespace {

using ::testing::HasSubstr;
using train::GradientSum;
using train::Group;
using train::RankOutcome;
using train::TrainOptions;

class CudaTrainerRanks : public CudaTest {
 protected:
  void SetUp() override {
    CudaTest::SetUp();
    were_late_ = set_streams_late(true);
  }
  void TearDown() override { set_streams_late(were_late_); }
  TrainOptions options(const std::string& name, DType compute = DType::kF32) {
    TrainOptions made = train::rank_options(folder_, name);
    made.compute = compute;
    made.context = 8;
    made.micro_batch_tokens = 16;
    made.step_tokens = 48;
    made.steps = 2;
    made.eval_tokens_max = 32;
    made.gpus = {0};
    return made;
  }
  // A run on ranks has the numbers and the bytes of the one alone.
  void expect_same(const TrainOptions& one, const std::vector<Group>& groups) {
    const RankOutcome alone = train::train_one(one);
    ASSERT_EQ(alone.error, "");
    const std::string expected = train::saved_bytes(one);
    EXPECT_EQ(expected.find("none"), std::string::npos);
    for (const Group& group : groups) {
      TrainOptions several = one;
      several.out_folder += "_" + std::to_string(++runs_);
      const std::string what = fmt::format("run {}, {} ranks", runs_, group.size);
      const auto ranks = train::train_ranks(several, group);
      train::expect_alike(ranks, alone, what);
      EXPECT_TRUE(train::saved_bytes(several) == expected) << what;
      for (const RankOutcome& rank : ranks) {
        EXPECT_EQ(rank.result.memory.arena_peak_bytes, rank.result.memory.arena_predicted_bytes);
      }
    }
  }

  train::TestFolder folder_;
  int runs_ = 0;
  bool were_late_ = false;
};

TEST_F(CudaTrainerRanks, GiveTheBitsOfOne) {
  expect_same(options("alone"), {{.size = 3, .delays = true},
                                 {.size = 2, .overlap = false},
                                 {.size = 5, .order = {2, 0, 3, 1, 4}}});
}

TEST_F(CudaTrainerRanks, GiveTheBitsOfOneInBf16) {
  TrainOptions one = options("alone", DType::kBF16);
  one.dropout = 0.2;
  one.optimizer.clip_norm = 0.05;
  one.config->tied_embeddings = true;
  expect_same(one, {{.size = 2, .delays = true}, {.size = 3, .shard = true}});
}

TEST_F(CudaTrainerRanks, DivideTheOptimizer) {
  expect_same(options("alone"), {{.size = 3, .shard = true, .delays = true}});
  TrainOptions q8 = options("q8");
  q8.optimizer.moments = ops::MomentFormat::kQ8;
  expect_same(q8, {{.size = 2, .shard = true}});
}

TEST_F(CudaTrainerRanks, AddAlongTheRingsWithTheSameBitsEveryTime) {
  std::vector<std::string> states;
  for (const Group& group :
       std::vector<Group>{{.size = 4, .sum = GradientSum::kRings, .delays = true},
                          {.size = 4, .sum = GradientSum::kRings, .overlap = false},
                          {.size = 4, .sum = GradientSum::kRings, .shard = true}}) {
    // Three micro-batches a step: one rank has none.
    TrainOptions several = options("rings" + std::to_string(states.size()));
    for (const RankOutcome& rank : train::train_ranks(several, group)) ASSERT_EQ(rank.error, "");
    states.push_back(train::saved_bytes(several));
  }
  for (const std::string& state : states) EXPECT_TRUE(state == states.front());
}

TEST_F(CudaTrainerRanks, TrainExpertsAndAdaptersBesideThem) {
  TrainOptions experts = options("experts");
  experts.config = train::tiny_biased_config();
  experts.expert_balance = 0.1;
  experts.expert_bias_rate = 0.01;
  expect_same(experts, {{.size = 2}});
  TrainOptions lora =
      train::tuning_options(options("lora"), experts.out_folder + "/model", folder_.file("lora"));
  lora.lora = formats::LoraConfig{.rank = 4, .alpha = 8};
  lora.base_format = ops::WeightFormat::kQ4;
  expect_same(lora, {{.size = 2}});
}

TEST_F(CudaTrainerRanks, LearnPreferences) {
  train::first_model(folder_);
  TrainOptions one = train::preference_options(folder_, "pairs");
  one.gpus = {0};
  one.steps = 2;
  one.step_tokens = 200;
  expect_same(one, {{.size = 2, .shard = true}});
}

TEST_F(CudaTrainerRanks, GoOnWithAnotherNumber) {
  TrainOptions whole = options("whole");
  whole.steps = 5;
  ASSERT_EQ(train::train_one(whole).error, "");
  TrainOptions parts = whole;
  parts.out_folder = folder_.file("parts");
  parts.checkpoint_every_steps = 1;
  // Behind two steps.
  const auto stop = [](int rank) {
    auto seen = std::make_shared<std::atomic<bool>>(false);
    train::TrainCallbacks callbacks;
    callbacks.on_step = [=](const train::StepInfo&) { *seen = true; };
    callbacks.should_stop = [=] { return rank == 1 && *seen; };
    return callbacks;
  };
  for (const Group& group : std::vector<Group>{{.size = 2}, {.size = 3, .shard = true}}) {
    for (const RankOutcome& rank : train::train_ranks(parts, group, stop)) {
      ASSERT_EQ(rank.error, "");
      EXPECT_TRUE(rank.result.stopped);
    }
  }
  ASSERT_EQ(train::train_one(parts).error, "");
  EXPECT_TRUE(train::saved_bytes(parts) == train::saved_bytes(whole));
}

// Where one of them fails between two steps, the others are in the midst of the next one.
TEST_F(CudaTrainerRanks, EndWhereOneFails) {
  for (const auto& [sum, shard] : {std::pair{GradientSum::kRelay, false},
                                   {GradientSum::kRelay, true},
                                   {GradientSum::kRings, false}}) {
    TrainOptions several = options(fmt::format("failed{}{}", static_cast<int>(sum), shard));
    several.steps = 20;
    std::array<std::shared_ptr<comm::AsyncGroup>, 3> groups;
    const auto fails = [&](int rank) {
      train::TrainCallbacks callbacks;
      callbacks.on_step = [&, rank](const train::StepInfo& info) {
        if (rank != 1 || info.step != 2) return;
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
        groups[1]->fail_with({Code::kUnavailable, "the GPU is lost"});
      };
      return callbacks;
    };
    const auto ranks = train::train_ranks(
        several, {.size = 3, .sum = sum, .shard = shard}, fails,
        [&](int rank, TrainOptions& own) { groups[static_cast<size_t>(rank)] = own.ranks->group; });
    for (const RankOutcome& rank : ranks) {
      EXPECT_THAT(rank.error, HasSubstr("the GPU is lost"));
      EXPECT_LE(rank.steps.size(), 3u);
    }
    EXPECT_THAT(ranks[0].error, HasSubstr("rank 1 (thread)"));
    EXPECT_THAT(ranks[0].error, HasSubstr("there is no checkpoint yet"));
  }
}

TEST_F(CudaTrainerRanks, KnowTheirMemory) {
  std::vector<train::TrainPlan> plans(2);
  const auto keep_plans = [&](int rank) {
    train::TrainCallbacks callbacks;
    callbacks.on_plan = [&plans, rank](const train::TrainPlan& plan) {
      plans[static_cast<size_t>(rank)] = plan;
    };
    return callbacks;
  };
  TrainOptions several = options("several");
  several.steps = 1;
  for (const RankOutcome& rank : train::train_ranks(several, {.size = 2}, keep_plans)) {
    ASSERT_EQ(rank.error, "");
  }
  for (const train::TrainPlan& plan : plans) {
    EXPECT_EQ(plan.ranks_on_gpu, 2);
    EXPECT_EQ(plan.memory_predicted_bytes, plan.memory.total_bytes());
    EXPECT_EQ(plan.pinned_bytes, plan.memory.weights.gradients_bytes);
    EXPECT_GT(plan.stream_bytes, 0);
  }
  // Enough for one of them.
  several.out_folder = folder_.file("small");
  several.memory_limit_bytes = plans[0].memory_predicted_bytes * 3 / 2;
  for (const RankOutcome& rank : train::train_ranks(several, {.size = 2})) {
    EXPECT_THAT(rank.error, HasSubstr("on each of 2 ranks on this GPU"));
  }
}

TEST_F(CudaTrainerRanks, RefuseOtherRanksWithoutAGpu) {
  const auto mixed =
      train::train_ranks(options("mixed"), {.size = 3}, nullptr, [](int rank, TrainOptions& own) {
        if (rank == 2) own.gpus.clear();
      });
  for (const RankOutcome& rank : mixed) {
    EXPECT_THAT(rank.error, HasSubstr("give all ranks a GPU, or none"));
    EXPECT_THAT(rank.error, HasSubstr("rank 2 (thread)"));
  }
}

}  // namespace
}  // namespace jige
