#include "cli/filled_cache.h"

#include <gtest/gtest.h>

#include <array>
#include <vector>

#include "cli/bench_serve_model.h"

namespace jige::cli {
namespace {

// Of one token behind what the first three blocks hold.
std::vector<float> logits_behind(model::InferenceModel& model,
                                 const std::array<int32_t, 4>& blocks) {
  const int32_t token = 5, row = 0;
  const ops::SequenceSpan span{.row_count = 1, .context_count = 48, .blocks = blocks.data()};
  const auto logits = model.forward({.tokens = std::span(&token, 1),
                                     .sequences = std::span(&span, 1),
                                     .logit_rows = std::span(&row, 1)});
  EXPECT_TRUE(logits.has_value());
  return std::vector<float>(logits->begin(), logits->end());
}

TEST(FilledCache, HoldsTheSameTokensInEveryBlock) {
  BenchServeModelFlags flags;
  flags.random = "tiny";
  auto served = flags.load(64, 4, 64, 8);
  ASSERT_TRUE(served) << served.error().message;
  model::InferenceModel& model = *served->model;
  ASSERT_TRUE(fill_cache(model, 33));  // the first three of four
  const std::vector<float> filled = logits_behind(model, {0, 1, 2, 3});
  EXPECT_EQ(filled, logits_behind(model, {1, 2, 0, 3}));
  EXPECT_EQ(filled, logits_behind(model, {2, 2, 2, 3}));
  EXPECT_EQ(fill_cache(model, 65).error().code, Code::kInvalidArgument);
}

TEST(FilledCache, WritesEveryBlock) {
  BenchServeModelFlags flags;
  flags.random = "tiny";
  auto served = flags.load(64, 4, 64, 8);
  ASSERT_TRUE(served) << served.error().message;
  model::InferenceModel& model = *served->model;
  const std::vector<float> behind_nothing = logits_behind(model, {3, 1, 2, 0});
  ASSERT_TRUE(write_cache(model));
  const std::vector<float> behind_last = logits_behind(model, {3, 1, 2, 0});
  EXPECT_NE(behind_last, behind_nothing);
  EXPECT_EQ(behind_last, logits_behind(model, {1, 1, 2, 3}));
  EXPECT_EQ(behind_last, logits_behind(model, {2, 1, 1, 3}));
}

TEST(FilledCache, IsWrittenWhereContextsAreShorterThanABlock) {
  BenchServeModelFlags flags;
  flags.random = "tiny";
  auto served = flags.load(12, 4, 64, 8);
  ASSERT_TRUE(served) << served.error().message;
  const Status written = write_cache(*served->model);
  EXPECT_TRUE(written) << written.error().message;
}

// Of a model with states the first one stands behind all tokens.
TEST(FilledCache, RunsAllTokensWhereTheModelHasStates) {
  CpuDevice device({.thread_count = 1});
  auto loaded =
      model::InferenceModel::load(std::string(JIGE_SOURCE_DIR) + "/tests/fixtures/model/qwen3_5",
                                  device, {.context_max = 64, .batch_tokens_max = 20});
  ASSERT_TRUE(loaded) << loaded.error().message;
  model::InferenceModel& model = **loaded;
  ASSERT_TRUE(write_cache(model));  // a step and copies, whatever the states then hold
  ASSERT_TRUE(fill_cache(model, 45));
  const std::array<int32_t, 4> blocks = {0, 1, 2, 3};
  const int32_t token = 5;
  for (const int32_t context : {44, 45}) {
    const ops::SequenceSpan span{.row_count = 1, .context_count = context, .blocks = blocks.data()};
    const auto found = model.forward(
        {.tokens = std::span(&token, 1), .sequences = std::span(&span, 1), .logit_rows = {}});
    EXPECT_EQ(found.has_value(), context == 45);
  }
}

}  // namespace
}  // namespace jige::cli
