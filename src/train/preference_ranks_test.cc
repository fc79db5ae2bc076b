// Preference runs on several ranks: the bits of one, with and without a divided optimizer, and what
// is said of their memory and operations.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <filesystem>

#include "train/preference_run_test_support.h"
#include "train/rank_test_support.h"
#include "train/step_flops.h"

namespace jige::train {
namespace {

using ::testing::HasSubstr;

// Losses, norms and means, bit by bit.
struct PairNumbers {
  std::vector<double> numbers;
  std::atomic<int> references{0};

  TrainCallbacks callbacks() {
    const auto add = [this](const PreferenceMeans& means) {
      numbers.insert(numbers.end(),
                     {static_cast<double>(means.pair_count), means.loss, means.margin,
                      means.accuracy, means.chosen_logprob, means.rejected_logprob});
    };
    return {.on_reference =
                [this](int64_t, int64_t) {
                  ++references;
                  return true;
                },
            .on_step = [add](const StepInfo& info) { add(*info.preference); }};
  }
};

TrainOptions ranked_options(const TestFolder& folder, const std::string& out) {
  TrainOptions options = preference_options(folder, out);
  options.dpo = {.beta = 0.2, .label_smoothing = 0.1, .sft_weight = 0.3};
  options.data.eval_fraction = 0.2;
  options.eval_every_steps = 2;
  options.steps = 4;
  options.step_tokens = 300;
  return options;
}

std::string checkpoint_bytes(const TrainOptions& options) {
  const std::string bytes = saved_bytes(options);
  EXPECT_EQ(bytes.find("none"), std::string::npos);
  return bytes;
}

// Ranks and their numbers, all equal to those of one.
void expect_pairs_alike(const TrainOptions& options, const Group& group, const RankOutcome& alone,
                        const PairNumbers& expected, const std::string& what) {
  std::vector<PairNumbers> numbers(static_cast<size_t>(group.size));
  const auto ranks = train_ranks(
      options, group, [&](int rank) { return numbers[static_cast<size_t>(rank)].callbacks(); });
  expect_alike(ranks, alone, what);
  for (const PairNumbers& rank : numbers) {
    EXPECT_EQ(rank.numbers, expected.numbers) << what;
    EXPECT_EQ(rank.references > 0, expected.references > 0) << what;
  }
  for (const RankOutcome& rank : ranks) {
    EXPECT_EQ(rank.result.memory.arena_peak_bytes, rank.result.memory.arena_predicted_bytes);
  }
}

TEST(PreferenceRanks, GiveTheBitsOfOneRank) {
  const TestFolder folder;
  first_model(folder);
  const TrainOptions one = ranked_options(folder, "alone");
  PairNumbers expected;
  const RankOutcome alone = train_one(one, expected.callbacks());
  ASSERT_EQ(alone.error, "");
  const std::string bytes = checkpoint_bytes(one);
  const std::string reference = *read_file(reference_file(one));
  int turn = 0;
  for (const Group& group : std::vector<Group>{{.size = 3, .delays = true, .order = {1, 2, 0}},
                                               {.size = 2, .overlap = false, .shard = true},
                                               {.size = 7, .shard = true, .delays = true}}) {
    const int64_t micro_batch = turn % 2 == 0 ? 64 : 256;
    TrainOptions options = one;
    options.out_folder = folder.file("ranks" + std::to_string(turn++));
    options.micro_batch_tokens = micro_batch;
    const std::string what = fmt::format("{} ranks, {} tokens", group.size, micro_batch);
    expect_pairs_alike(options, group, alone, expected, what);
    EXPECT_TRUE(saved_bytes(options) == bytes) << what;
    EXPECT_TRUE(*read_file(reference_file(options)) == reference) << what;
  }
}

TEST(PreferenceRanks, HoldWithAdaptersAndInBf16WithTheSameMicroBatches) {
  const TestFolder folder;
  first_model(folder);
  for (const bool adapter : {false, true}) {
    TrainOptions one = ranked_options(folder, fmt::format("alone{}", adapter));
    if (adapter) {
      one.lora = formats::LoraConfig{.rank = 3, .alpha = 8};
      one.base_format = ops::WeightFormat::kQ8;
    } else {
      one.compute = DType::kBF16;
      one.dropout = 0.2;
      one.dropout_pool = 4;
      one.dropout_at_once = 2;
      one.ffn_dropout = 0.4;
      one.ffn_dropout_block = 32;
    }
    PairNumbers expected;
    const RankOutcome alone = train_one(one, expected.callbacks());
    ASSERT_EQ(alone.error, "");
    for (const bool shard : {false, true}) {
      TrainOptions options = one;
      options.out_folder = folder.file(fmt::format("ranks{}{}", adapter, shard));
      const std::string what = fmt::format("adapter {}, divided {}", adapter, shard);
      expect_pairs_alike(options, {.size = 3, .shard = shard}, alone, expected, what);
      EXPECT_TRUE(saved_bytes(options) == saved_bytes(one)) << what;
    }
  }
}

TEST(PreferenceRanks, GoOnWithOthersAndWithALostReference) {
  const TestFolder folder;
  first_model(folder);
  TrainOptions whole = ranked_options(folder, "whole");
  whole.steps = 10;
  ASSERT_EQ(train_one(whole).error, "");
  TrainOptions parts = whole;
  parts.out_folder = folder.file("parts");
  const auto go_on = [&](const Group& group, int64_t steps, bool computes) {
    std::atomic<int> references{0};
    const auto ranks = train_ranks(parts, group, [&](int rank) {
      auto count = std::make_shared<std::atomic<int64_t>>(0);
      TrainCallbacks callbacks;
      callbacks.on_reference = [&](int64_t, int64_t) {
        ++references;
        return true;
      };
      callbacks.should_stop = [=] { return rank == 0 && ++*count == steps; };
      return callbacks;
    });
    for (const RankOutcome& rank : ranks) ASSERT_EQ(rank.error, "");
    EXPECT_EQ(references > 0, computes);
  };
  go_on({.size = 3, .shard = true}, 2, true);
  go_on({.size = 2}, 3, false);
  ASSERT_TRUE(std::filesystem::remove(reference_file(parts)));
  go_on({.size = 2, .shard = true}, 2, true);
  go_on({.size = 1}, 1, false);
  ASSERT_TRUE(std::filesystem::remove(reference_file(parts)));
  go_on({.size = 4, .shard = true}, 100, true);
  go_on({.size = 2, .shard = true}, 100, false);  // nothing is left to do
  EXPECT_TRUE(saved_bytes(parts) == saved_bytes(whole));
}

TEST(PreferenceRanks, EndWhereOneIsToldToWhileTheReferenceIsComputed) {
  const TestFolder folder;
  first_model(folder);
  const TrainOptions options = ranked_options(folder, "stopped");
  const auto ranks = train_ranks(options, {.size = 3}, [](int rank) {
    TrainCallbacks callbacks;
    callbacks.on_reference = [rank](int64_t, int64_t) { return rank != 1; };
    return callbacks;
  });
  for (const RankOutcome& rank : ranks) {
    EXPECT_THAT(rank.error, HasSubstr("stopped while the reference was computed"));
  }
  EXPECT_EQ(reference_file(options), "");
}

TEST(PreferenceRuns, CountTheSecondHeadPassAndTheReference) {
  const auto architecture = *model::Architecture::create(tiny_config());
  TrainOptions options;
  const double texts = training_flops(*architecture, options, 100, 10);
  options.dpo.emplace();
  // A logit is a product of the width of the model: two operations for each element.
  EXPECT_EQ(training_flops(*architecture, options, 100, 10) - texts,
            2.0 * 100 * kTestVocab * tiny_config().hidden_size);

  const TestFolder folder;
  first_model(folder);
  TrainOptions tuned = ranked_options(folder, "tuned");
  TrainPlan plan;
  TrainCallbacks callbacks;
  callbacks.on_plan = [&](const TrainPlan& made) { plan = made; };
  ASSERT_EQ(train_one(tuned, callbacks).error, "");
  EXPECT_EQ(plan.sequence_count + plan.held_out_count, 48);
  EXPECT_EQ(plan.reference_bytes, 48 * 24);
  // Just enough, and one byte too little once the pairs are known.
  tuned.out_folder = folder.file("enough");
  tuned.memory_limit_bytes = plan.memory_predicted_bytes;
  EXPECT_EQ(train_one(tuned).error, "");
  tuned.out_folder = folder.file("little");
  --tuned.memory_limit_bytes;
  EXPECT_THAT(train_one(tuned).error, HasSubstr("training needs"));
}

}  // namespace
}  // namespace jige::train
