#include "train/step_plan.h"

#include <gtest/gtest.h>

#include <set>

#include "base/rng.h"
#include "train/test_support.h"

namespace jige::train {
namespace {

// Sequences of random lengths up to 16; `begin` tells them apart.
std::vector<Sequence> some_sequences(size_t count) {
  Rng rng(31);
  std::vector<Sequence> sequences;
  for (size_t i = 0; i < count; ++i) {
    const auto length = static_cast<int32_t>(1 + rng.below(16));
    sequences.push_back({static_cast<int64_t>(i) * 100, length, length});
  }
  return sequences;
}

constexpr StepPlannerOptions kOptions{.seed = 5, .step_tokens = 64, .micro_batch_tokens = 24};

std::vector<Sequence> flat(const StepPlan& plan) {
  std::vector<Sequence> all;
  for (const MicroBatch& micro_batch : plan.micro_batches) {
    all.insert(all.end(), micro_batch.sequences.begin(), micro_batch.sequences.end());
  }
  return all;
}

TEST(StepPlanner, TakesEverySequenceOnceAnEpochInAnotherOrderEachTime) {
  const auto sequences = some_sequences(50);
  StepPlannerOptions options = kOptions;
  options.cursor_max = 150;
  StepPlanner planner(sequences, options);
  std::vector<Sequence> taken;
  int64_t steps = 0;
  for (uint64_t cursor = 0; cursor < 150; ++steps) {
    const StepPlan plan = planner.plan(cursor);
    for (const Sequence& sequence : flat(plan)) taken.push_back(sequence);
    cursor = plan.cursor_end;
  }
  EXPECT_EQ(steps, *planner.count_steps(1000));
  ASSERT_EQ(taken.size(), 150u);
  for (size_t epoch = 0; epoch < 3; ++epoch) {
    std::set<int64_t> begins;
    for (size_t i = 0; i < 50; ++i) begins.insert(taken[epoch * 50 + i].begin);
    EXPECT_EQ(begins.size(), 50u);
  }
  EXPECT_FALSE(std::equal(taken.begin(), taken.begin() + 50, taken.begin() + 50));
}

TEST(StepPlanner, CutsStepsIntoEqualSharesForRanks) {
  Rng rng(8);
  for (int round = 0; round < 300; ++round) {
    const auto sequences = some_sequences(1 + rng.below(60));
    const auto tokens = static_cast<int64_t>(16 + rng.below(100));
    const auto parts = static_cast<int64_t>(1 + rng.below(6));
    const auto packed = pack_evenly(sequences, tokens, parts);
    const auto fewest = pack_micro_batches(sequences, tokens);
    std::vector<Sequence> all;
    int64_t total = 0;
    int64_t largest = 0;
    for (const MicroBatch& micro_batch : packed) {
      all.insert(all.end(), micro_batch.sequences.begin(), micro_batch.sequences.end());
      int64_t inputs = 0, learned = 0;
      for (const Sequence& sequence : micro_batch.sequences) {
        inputs += sequence.count;
        learned += sequence.learned_count;
      }
      EXPECT_GT(inputs, 0);
      EXPECT_EQ(micro_batch.input_count, inputs);
      EXPECT_EQ(micro_batch.learned_count, learned);
      EXPECT_LE(inputs, tokens);
      total += inputs;
      largest = std::max(largest, inputs);
    }
    EXPECT_EQ(all, sequences);
    const auto count = static_cast<int64_t>(fewest.size());
    if (count % parts == 0) {
      EXPECT_EQ(packed.size(), fewest.size());
      continue;
    }
    // No share is larger than an equal one by more than a sequence.
    const int64_t shares = (count + parts - 1) / parts * parts;
    EXPECT_LE(largest, total / shares + 16 + 1);
  }
}

TEST(StepPlanner, KeepsToItsBudgets) {
  const auto sequences = some_sequences(200);
  StepPlanner planner(sequences, kOptions);
  for (uint64_t cursor = 0; cursor < 400;) {
    const StepPlan plan = planner.plan(cursor);
    EXPECT_LE(plan.input_count, 64);
    EXPECT_GT(plan.input_count, 64 - 16);
    EXPECT_EQ(plan.input_count, plan.learned_count);
    for (const MicroBatch& micro_batch : plan.micro_batches) {
      EXPECT_LE(micro_batch.input_count, 24);
    }
    EXPECT_EQ(flat(plan).size(), plan.cursor_end - cursor);
    cursor = plan.cursor_end;
  }
}

TEST(StepPlanner, GivesTheSameStepFromTheSameCursor) {
  const auto sequences = some_sequences(40);
  StepPlanner ahead(sequences, kOptions);
  uint64_t cursor = 0;
  for (int step = 0; step < 12; ++step) cursor = ahead.plan(cursor).cursor_end;
  StepPlanner resumed(sequences, kOptions);
  EXPECT_EQ(flat(resumed.plan(cursor)), flat(ahead.plan(cursor)));
  StepPlannerOptions other = kOptions;
  other.seed = 6;
  StepPlanner reseeded(sequences, other);
  EXPECT_NE(flat(reseeded.plan(0)), flat(ahead.plan(0)));
}

TEST(StepPlanner, TakesTheSameSequencesInTheSameOrderForAnyMicroBatchSize) {
  const auto sequences = some_sequences(100);
  StepPlanner planner(sequences, kOptions);
  for (const int64_t tokens : {16, 17, 40, 1000}) {
    StepPlannerOptions options = kOptions;
    options.micro_batch_tokens = tokens;
    StepPlanner other(sequences, options);
    for (uint64_t cursor = 0; cursor < 100;) {
      const StepPlan plan = planner.plan(cursor);
      EXPECT_EQ(flat(other.plan(cursor)), flat(plan));
      cursor = plan.cursor_end;
    }
  }
}

TEST(StepPlanner, TakesOneSequenceThatIsLongerThanAStep) {
  const std::vector<Sequence> sequences = {{0, 16, 16}, {100, 16, 16}};
  StepPlanner planner(sequences, {.seed = 1, .step_tokens = 4, .micro_batch_tokens = 16});
  EXPECT_EQ(planner.plan(0).cursor_end, 1u);
}

TEST(StepPlanner, CountsStepsOfEqualSequencesWithoutAWalk) {
  const std::vector<Sequence> sequences(7, Sequence{0, 10, 10});
  for (const int64_t step_tokens : {4, 10, 25, 60, 1000}) {
    for (const uint64_t cursor_max : {1, 5, 7, 30, 100}) {
      StepPlanner planner(
          sequences,
          {.step_tokens = step_tokens, .micro_batch_tokens = 20, .cursor_max = cursor_max});
      int64_t steps = 0;
      int64_t most = 0;
      for (uint64_t cursor = 0; cursor < cursor_max; ++steps) {
        const StepPlan plan = planner.plan(cursor);
        most = std::max(most, static_cast<int64_t>(plan.micro_batches.size()));
        cursor = plan.cursor_end;
      }
      EXPECT_EQ(*planner.count_steps(1000), steps);
      EXPECT_EQ(*planner.count_steps(3), std::min<int64_t>(steps, 4));
      EXPECT_EQ(*planner.most_micro_batches(steps), most);
    }
  }
  StepPlanner long_run(
      sequences, {.step_tokens = 25, .micro_batch_tokens = 20, .cursor_max = uint64_t{1} << 60});
  EXPECT_EQ(*long_run.count_steps(INT64_MAX - 1), int64_t{1} << 59);
  EXPECT_EQ(*long_run.most_micro_batches(INT64_MAX), 1);
}

TEST(StepPlanner, FindsTooManyStepsWithoutAWalk) {
  const auto sequences = some_sequences(50);
  StepPlannerOptions options = kOptions;
  options.cursor_max = uint64_t{1} << 60;
  StepPlanner planner(sequences, options);
  EXPECT_EQ(*planner.count_steps(99'999'999), 100'000'000);
}

TEST(StepPlanner, StopsItsWalksWhenTold) {
  const auto sequences = some_sequences(50);
  StepPlannerOptions options = kOptions;
  options.step_tokens = 65536;
  options.cursor_max = 100'000'000'000;
  StepPlanner planner(sequences, options);
  std::vector<int64_t> done;
  const WalkProgress progress = [&](int64_t now, int64_t total) {
    EXPECT_GT(total, now);
    done.push_back(now);
    return false;
  };
  const auto steps = planner.count_steps(99'999'999, progress);
  ASSERT_FALSE(steps);
  EXPECT_EQ(steps.error().code, Code::kCancelled);
  const auto most = planner.most_micro_batches(99'999'999, progress);
  ASSERT_FALSE(most);
  EXPECT_EQ(most.error().code, Code::kCancelled);
  EXPECT_EQ(done.size(), 2u);
}

TEST(StepPlan, WeighsTargetsByTheirNumberAndExpertsByAllTokens) {
  const StepPlan plan{.input_count = 10, .learned_count = 4};
  EXPECT_EQ(loss_weight_of(plan), 0.25f);
  EXPECT_EQ(balance_weight_of(plan, 0.5), 0.05f);
}

TEST(ReadBatch, ShiftsTargetsRestartsPositionsAndMasks) {
  const TestFolder folder;
  const std::string path = folder.file("corpus.bin");
  auto writer = formats::TokenFileWriter::create(path, {.vocab_size = 100, .with_mask = true});
  ASSERT_TRUE(writer->append(std::vector<int32_t>{10, 11, 12, 13, 20, 21, 22},
                             std::vector<uint8_t>{0, 0, 1, 1, 1, 1, 1}));
  ASSERT_TRUE(writer->commit());
  Corpus corpus;
  corpus.add(*formats::TokenFile::open(path, {}), {4, 7});
  const auto sequences = cut_sequences(corpus, {.context = 8});
  ASSERT_TRUE(sequences);
  const auto packed = pack_micro_batches(sequences->training, 8);
  ASSERT_EQ(packed.size(), 1u);
  EXPECT_EQ(packed[0].learned_count, 4);
  HostBatch batch;
  ASSERT_TRUE(read_batch(corpus, packed[0], batch));
  EXPECT_EQ(batch.tokens, (std::vector<int32_t>{10, 11, 12, 20, 21}));
  EXPECT_EQ(batch.targets, (std::vector<int32_t>{-1, 12, 13, 21, 22}));
  EXPECT_EQ(batch.positions, (std::vector<int32_t>{0, 1, 2, 0, 1}));
  EXPECT_EQ(batch.counts, (std::vector<int32_t>{3, 2}));
}

TEST(ReadBatch, PutsTheTwoAnswersOfAPairSideBySide) {
  const TestFolder folder;
  const std::string path = folder.file("corpus.bin");
  auto writer = formats::TokenFileWriter::create(path, {.vocab_size = 100, .with_mask = true});
  ASSERT_TRUE(writer->append(std::vector<int32_t>{10, 11, 12, 13, 10, 11, 22, 30, 31, 30, 32, 33},
                             std::vector<uint8_t>{0, 0, 1, 1, 0, 0, 1, 0, 1, 0, 1, 1}));
  ASSERT_TRUE(writer->commit());
  Corpus corpus;
  corpus.add(*formats::TokenFile::open(path, {}), {4, 7, 9, 12}, DocumentsOf::kPairs);
  const auto sequences = cut_sequences(corpus, {.context = 8});
  ASSERT_TRUE(sequences) << sequences.error().message;
  EXPECT_EQ(sequences->training, (std::vector<Sequence>{{0, 5, 3}, {7, 3, 3}}));
  const auto packed = pack_micro_batches(sequences->training, 8);
  ASSERT_EQ(packed.size(), 1u);
  HostBatch batch;
  ASSERT_TRUE(read_batch(corpus, packed[0], batch));
  EXPECT_EQ(batch.tokens, (std::vector<int32_t>{10, 11, 12, 10, 11, 30, 30, 32}));
  EXPECT_EQ(batch.targets, (std::vector<int32_t>{-1, 12, 13, -1, 22, 31, 32, 33}));
  EXPECT_EQ(batch.positions, (std::vector<int32_t>{0, 1, 2, 0, 1, 0, 0, 1}));
  EXPECT_EQ(batch.counts, (std::vector<int32_t>{3, 2, 1, 2}));
  // A pair that a cached file contradicts is refused, not cut.
  const auto longer = cut_sequences(corpus, {.context = 2});
  ASSERT_FALSE(longer);
  EXPECT_EQ(longer.error().code, Code::kCorrupt);
}

TEST(ReadBatch, NamesATokenOutsideTheVocabulary) {
  const TestFolder folder;
  const std::string path = folder.file("corpus.bin");
  auto writer = formats::TokenFileWriter::create(path, {.vocab_size = 100});
  ASSERT_TRUE(writer->append(std::vector<int32_t>{1, 99}));
  ASSERT_TRUE(writer->commit());
  Corpus corpus;
  corpus.add(*formats::TokenFile::open(path, {.vocab_size = 50}), {2});
  HostBatch batch;
  const Status read =
      read_batch(corpus, pack_micro_batches(std::vector<Sequence>{{0, 1, 1}}, 4)[0], batch);
  ASSERT_FALSE(read);
  EXPECT_EQ(read.error().code, Code::kCorrupt);
}

}  // namespace
}  // namespace jige::train
