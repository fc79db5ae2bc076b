#include "serve/step_meter.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "serve/serve_test_support.h"

namespace jige::serve {
namespace {

using testing::Loaded;

model::InferenceOptions small_options() {
  return {.context_max = 96, .kv_block_count = 64, .batch_tokens_max = 32, .logit_rows_max = 8};
}

struct MeteredTurn {
  int64_t rows = 0, sampled_rows = 0, sequences = 0, keys = 0;
};

std::vector<MeteredTurn> turns_of(Loaded& loaded, const StepShape& shape, int32_t turns = 3) {
  StepMeter meter(*loaded.model, loaded.tokenizer, nullptr);
  std::vector<MeteredTurn> seen;
  const Status status = meter.run(shape, turns, [&](const StepMeter::Turn& metered) {
    EXPECT_GT(metered.seconds, 0);
    const plan::Batch& batch = metered.batch;
    MeteredTurn turn{.sequences = std::ssize(batch.items)};
    for (const plan::WorkItem& item : batch.items) {
      turn.rows += std::ssize(item.tokens);
      turn.sampled_rows += item.sample_rows();
      turn.keys += item.context_count + std::ssize(item.tokens);
    }
    seen.push_back(turn);
  });
  EXPECT_TRUE(status) << status.error().message;
  EXPECT_EQ(seen.size(), static_cast<size_t>(turns));
  return seen;
}

TEST(StepMeter, RunsNextTokensBehindTheirContexts) {
  Loaded loaded("llama3", small_options());
  const uint64_t before = loaded.model->forward_count();
  const auto turns = turns_of(loaded, {.decode_rows = 5, .decode_context = 40});
  EXPECT_EQ(loaded.model->forward_count() - before, 4u) << "contexts are for nothing";
  for (size_t i = 0; i < turns.size(); ++i) {
    EXPECT_EQ(turns[i].rows, 5);
    EXPECT_EQ(turns[i].sampled_rows, 5);
    EXPECT_EQ(turns[i].keys, 5 * (41 + static_cast<int64_t>(i)));
  }
}

TEST(StepMeter, RunsWholePromptsInEveryTurn) {
  Loaded loaded("llama3", small_options());
  for (const MeteredTurn& turn :
       turns_of(loaded, {.prompt_count = 2, .prompt_rows = 10, .prompt_context = 20})) {
    EXPECT_EQ(turn.rows, 20);
    EXPECT_EQ(turn.sampled_rows, 2);
    EXPECT_EQ(turn.sequences, 2);
    EXPECT_EQ(turn.keys, 60);
  }
}

TEST(StepMeter, RunsPiecesThatNothingIsDrawnFrom) {
  Loaded loaded("llama3", small_options());
  const auto turns =
      turns_of(loaded, {.prompt_count = 1, .prompt_rows = 8, .prompt_context = 16, .piece = true});
  for (size_t i = 0; i < turns.size(); ++i) {
    EXPECT_EQ(turns[i].rows, 8);
    EXPECT_EQ(turns[i].sampled_rows, 0);
    EXPECT_EQ(turns[i].keys, 24 + 8 * static_cast<int64_t>(i));
  }
}

TEST(StepMeter, RunsThemTogether) {
  Loaded loaded("llama3", small_options());
  const StepShape shape{.decode_rows = 3,
                        .decode_context = 30,
                        .prompt_count = 1,
                        .prompt_rows = 12,
                        .prompt_context = 24};
  for (const MeteredTurn& turn : turns_of(loaded, shape)) {
    EXPECT_EQ(turn.rows, 15);
    EXPECT_EQ(turn.sampled_rows, 4);
    EXPECT_EQ(turn.sequences, 4);
  }
}

TEST(StepMeter, KnowsWhatAModelHolds) {
  const model::InferenceSizes sizes{
      .context_max = 96, .kv_block_count = 16, .batch_tokens_max = 32, .logit_rows_max = 8};
  EXPECT_TRUE(holds_steps(sizes, {.decode_rows = 8, .decode_context = 20}, 3));
  EXPECT_FALSE(holds_steps(sizes, {.decode_rows = 9}, 3)) << "rows of logits";
  EXPECT_FALSE(holds_steps(sizes, {.decode_rows = 8, .decode_context = 40}, 3)) << "blocks";
  EXPECT_FALSE(holds_steps(sizes, {.decode_rows = 1, .decode_context = 93}, 3)) << "context";
  EXPECT_TRUE(holds_steps(sizes, {.prompt_count = 1, .prompt_rows = 32}, 3));
  EXPECT_FALSE(holds_steps(sizes, {.prompt_count = 1, .prompt_rows = 33}, 3)) << "rows";
  EXPECT_FALSE(holds_steps(sizes, {}, 3)) << "nothing to run";
}

}  // namespace
}  // namespace jige::serve
