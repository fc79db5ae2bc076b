#include "sim/step_time.h"

#include <gtest/gtest.h>

namespace jige::sim {
namespace {

plan::WorkItem work(int32_t context, int32_t count, bool samples) {
  plan::WorkItem item;
  item.context_count = context;
  item.tokens.resize(static_cast<size_t>(count));
  item.samples = samples;
  return item;
}

TEST(StepTime, TheFormOfThreeTerms) {
  const StepTime step{.base_s = 1, .token_s = 0.1, .kv_token_s = 0.01};
  const plan::Batch batch{.items = {work(4, 10, true), work(20, 1, true)}};
  EXPECT_DOUBLE_EQ(step.seconds(batch), 1 + 0.1 * 11 + 0.01 * (14 + 21));
}

TEST(StepTime, EachFeatureCostsItsOwn) {
  const plan::Batch batch{.items = {work(4, 10, false), work(20, 1, true), work(30, 1, true)}};
  EXPECT_DOUBLE_EQ(StepTime{.base_s = 2}.seconds(batch), 2);
  EXPECT_DOUBLE_EQ(StepTime{.token_s = 2}.seconds(batch), 24);
  EXPECT_DOUBLE_EQ(StepTime{.kv_token_s = 2}.seconds(batch), 2 * (14 + 21 + 31));
  EXPECT_DOUBLE_EQ(StepTime{.decode_key_s = 2}.seconds(batch), 2 * (21 + 31));
  EXPECT_DOUBLE_EQ(StepTime{.pair_s = 2}.seconds(batch), 2 * (10 * 4 + 55 + 21 + 31));
  EXPECT_DOUBLE_EQ(StepTime{.sequence_s = 2}.seconds(batch), 6);
  EXPECT_DOUBLE_EQ(StepTime{.sampling_s = 2}.seconds(batch), 2);
  EXPECT_DOUBLE_EQ(StepTime{.sampled_row_s = 2}.seconds(batch), 4);
  const plan::Batch piece{.items = {work(4, 10, false)}};
  EXPECT_DOUBLE_EQ(StepTime{.sampling_s = 2}.seconds(piece), 0) << "nobody is sampled from";
}

TEST(StepTime, RowsFollowTheirSegments) {
  const StepTime step{.token_s = 0.5, .row_segments = {{4, 0.25}, {16, 0}, {32, 1}}};
  EXPECT_DOUBLE_EQ(step.rows_seconds(0), 0);
  EXPECT_DOUBLE_EQ(step.rows_seconds(2), 0.5);
  EXPECT_DOUBLE_EQ(step.rows_seconds(4), 1);
  EXPECT_DOUBLE_EQ(step.rows_seconds(16), 1);
  EXPECT_DOUBLE_EQ(step.rows_seconds(20), 5);
  EXPECT_DOUBLE_EQ(step.rows_seconds(34), 18);
}

TEST(StepTime, SampledRowsAndKeysFollowTheirs) {
  const plan::Batch batch{.items = {work(4, 10, false), work(20, 1, true), work(30, 1, true)}};
  const StepTime sampled{.sampled_row_s = 0.5, .sampled_row_segments = {{1, 3}}};
  EXPECT_DOUBLE_EQ(sampled.seconds(batch), 3.5);
  const StepTime keys{.decode_key_s = 2, .decode_key_segments = {{40, 0.5}}};
  EXPECT_DOUBLE_EQ(keys.seconds(batch), 20 + 2 * (21 + 31 - 40));
}

TEST(StepTime, WhatIsLargerThanAForwardTakesSeveral) {
  const StepTime step{.base_s = 1,
                      .sampling_s = 10,
                      .row_segments = {{8, 0.5}},
                      .limits = {.rows_max = 8, .sample_rows_max = 2}};
  const plan::Batch prompt{.items = {work(0, 20, true)}};
  EXPECT_DOUBLE_EQ(step.seconds(prompt), 3 + 10 + 0.5 * 20) << "the head runs once";
  const plan::Batch decodes{.items = {work(9, 1, true), work(9, 1, true), work(9, 1, true)}};
  EXPECT_DOUBLE_EQ(step.seconds(decodes), 2 * (1 + 10) + 0.5 * 3);
  std::vector<double> ends;
  Rng rng(1);
  const plan::Batch two{.items = {work(0, 2, true), work(0, 12, true)}};
  EXPECT_DOUBLE_EQ(step.draw_seconds(two, ends, rng), 2 + 2 * 10 + 0.5 * 14);
  EXPECT_EQ(ends, (std::vector<double>{1 + 10 + 4, 29})) << "the first is done earlier";
  // Keys are read again by each forward.
  const StepTime keys{.kv_token_s = 1, .limits = {.rows_max = 8}};
  EXPECT_DOUBLE_EQ(keys.seconds(prompt), 8 + 16 + 20);
}

// Each forward has its own, by how long it usually takes.
TEST(StepTime, NoiseIsDrawnForEveryForward) {
  StepTime step{.base_s = 1, .token_s = 1, .limits = {.rows_max = 8}};
  const size_t shares = noise_shares().size();
  step.noise.groups = {{.end_s = 5, .quantiles = std::vector<double>(shares, 3)},
                       {.end_s = 9, .quantiles = std::vector<double>(shares, 2)}};
  std::vector<double> ends;
  Rng rng(1);
  const plan::Batch batch{.items = {work(0, 10, true)}};  // forwards of 8 and 2 rows
  EXPECT_DOUBLE_EQ(step.seconds(batch), 9 + 3);
  EXPECT_DOUBLE_EQ(step.draw_seconds(batch, ends, rng), 2 * 9 + 3 * 3);
  EXPECT_EQ(ends, std::vector<double>{27});

  for (size_t i = 0; i < shares; ++i) {
    step.noise.groups[0].quantiles[i] = 1 + noise_shares()[i];
    step.noise.groups[1].quantiles[i] = 1 + 2 * noise_shares()[i];
  }
  const plan::Batch four{.items = {work(0, 7, true)}};
  double sum = 0;
  for (int i = 0; i < 20'000; ++i) sum += step.draw_seconds(four, ends, rng);
  EXPECT_NEAR(sum / 20'000, 8 * 2, 0.1);
  StepFeatures sums;
  sums.add(0, 7, 1);
  EXPECT_DOUBLE_EQ(step.mean_seconds(sums), 8 * 2);
  EXPECT_DOUBLE_EQ(step.seconds(sums), 8);
}

TEST(StepTime, SumsGiveWhatABatchDoes) {
  const StepTime step{.base_s = 1,
                      .token_s = 0.25,
                      .kv_token_s = 0.01,
                      .decode_key_s = 0.02,
                      .pair_s = 0.001,
                      .sequence_s = 0.1,
                      .sampling_s = 2,
                      .sampled_row_s = 0.3,
                      .row_segments = {{4, 0.5}},
                      .sampled_row_segments = {{2, 0.7}},
                      .decode_key_segments = {{30, 0.01}},
                      .limits = {.rows_max = 32, .sample_rows_max = 8}};
  const plan::Batch batch{.items = {work(4, 10, false), work(20, 1, true), work(30, 1, true)}};
  StepFeatures sums;
  for (const plan::WorkItem& item : batch.items) {
    sums.add(item.context_count, std::ssize(item.tokens), item.sample_rows());
  }
  EXPECT_DOUBLE_EQ(step.seconds(sums), step.seconds(batch));
  // Decodes beyond the rows of logits: the same two forwards, evenly.
  plan::Batch decodes;
  sums = {};
  for (int i = 0; i < 16; ++i) {
    decodes.items.push_back(work(9, 1, true));
    sums.add(9, 1, 1);
  }
  EXPECT_DOUBLE_EQ(step.seconds(sums), step.seconds(decodes));
  EXPECT_DOUBLE_EQ(step.seconds({.rows = 80}),
                   3 + 2 * step.rows_seconds(32) + step.rows_seconds(16));
}

}  // namespace
}  // namespace jige::sim
