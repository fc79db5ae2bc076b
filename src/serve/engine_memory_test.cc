#include "serve/engine_memory.h"

#include "serve/adapter_folders.h"
#include "serve/draft_model.h"
#include "serve/serve_test_support.h"

namespace jige::serve {
namespace {

using testing::AdapterFolders;
using testing::fixture;
using testing::value_of;

constexpr model::InferenceOptions kOptions = {.context_max = 60, .batch_tokens_max = 64};

void expect_the_most_blocks(model::InferenceOptions options) {
  for (const char* name : {"llama2", "gpt2", "mistral", "gpt_neox", "phi"}) {
    for (const int64_t limit : {int64_t{400} << 10, int64_t{3} << 20}) {
      options.kv_block_count = 0;
      options.memory_bytes_max = kUnlimitedBytes;
      const auto memory = value_of(plan_engine_memory(fixture(name), options, limit));
      EXPECT_LE(memory.total_bytes(), limit) << name;
      EXPECT_GE(memory.kv_block_count, 4);
      EXPECT_EQ(memory.kv_tokens, 16 * memory.kv_block_count);
      EXPECT_DOUBLE_EQ(memory.full_contexts, static_cast<double>(memory.kv_tokens) / 60);
      // What is left is less than what a block takes (and what rounding may).
      EXPECT_GT(memory.total_bytes() + memory.kv_bytes / memory.kv_block_count + 1024, limit);

      options.kv_block_count = memory.kv_block_count;
      options.memory_bytes_max = memory.total_bytes();
      CpuDevice device({.thread_count = 1});
      const auto model = value_of(model::InferenceModel::load(fixture(name), device, options));
      EXPECT_EQ(model->peak_bytes(), memory.total_bytes()) << name;
    }
  }
}

TEST(EngineMemory, TakesTheMostBlocksThatFitAndTheModelTakesNoMore) {
  expect_the_most_blocks(kOptions);
  model::InferenceOptions bytes = kOptions;
  bytes.kv_dtype = DType::kI8;
  expect_the_most_blocks(bytes);
}

// Heads of 8: 8 numbers and a scale of 2 bytes, for 16 bytes in bf16 and 32 in f32.
TEST(EngineMemory, ACacheIn8BitsHoldsMoreContexts) {
  model::InferenceOptions options = kOptions;
  const auto plan = [&](DType kv_dtype) {
    options.kv_dtype = kv_dtype;
    return value_of(plan_engine_memory(fixture("llama2"), options, int64_t{3} << 20));
  };
  const auto bytes = plan(DType::kI8);
  const auto halves = plan(DType::kBF16);
  const auto whole = plan(DType::kF32);
  EXPECT_NEAR(bytes.full_contexts / halves.full_contexts, 16.0 / 10, 0.02);
  EXPECT_NEAR(bytes.full_contexts / whole.full_contexts, 32.0 / 10, 0.04);
}

TEST(EngineMemory, DraftsTakeTheirShareOfTheLimit) {
  const int64_t limit = int64_t{3} << 20;
  const auto without = value_of(plan_engine_memory(fixture("llama2"), kOptions, limit));
  const MemoryBeside drafts{.drafts = {.tokens_max = 8}, .draft_sequences = 32};
  const auto with = value_of(plan_engine_memory(fixture("llama2"), kOptions, limit, drafts));
  EXPECT_EQ(without.drafts_bytes, 0);
  EXPECT_EQ(with.drafts_bytes, 32 * (64 * 2 * 4 + 64 * (3 * 4 + 2)))
      << "a table of 64 places and guesses";
  EXPECT_LE(with.total_bytes(), limit);
  EXPECT_LT(with.kv_block_count, without.kv_block_count);
}

TEST(EngineMemory, ADraftModelHasAsManyBlocksAndTakesWhatWasPlanned) {
  const int64_t limit = int64_t{3} << 20;
  const auto without = value_of(plan_engine_memory(fixture("llama2"), kOptions, limit));
  const auto plan = value_of(DraftModelPlan::create(
      fixture("gpt2"), {.ids_max = 96, .sequences = 1000, .batch_tokens_max = 64}));
  const auto with =
      value_of(plan_engine_memory(fixture("llama2"), kOptions, limit, {.draft_model = &plan}));
  EXPECT_EQ(without.draft_model_bytes, 0);
  EXPECT_EQ(with.draft_model_bytes, plan.bytes(with.kv_block_count));
  EXPECT_LE(with.total_bytes(), limit);
  EXPECT_LT(with.kv_block_count, without.kv_block_count);

  model::InferenceOptions options = kOptions;
  options.kv_block_count = with.kv_block_count;
  CpuDevice device({.thread_count = 1});
  const auto model = value_of(model::InferenceModel::load(fixture("llama2"), device, options));
  const auto draft = value_of(DraftModel::load(plan, *model, with.draft_model_bytes));
  EXPECT_EQ(draft->free_block_count(), with.kv_block_count);
  EXPECT_EQ(model->peak_bytes() + draft->model().peak_bytes(), with.total_bytes());

  EXPECT_FALSE(DraftModel::load(plan, *model, with.draft_model_bytes - 1));
  const auto refused =
      plan_engine_memory(fixture("llama2"), kOptions, 1000, {.draft_model = &plan});
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().message.find("the draft model "), std::string::npos);
}

TEST(EngineMemory, ConstraintsTakeTheirShareOfTheLimit) {
  const int64_t limit = int64_t{3} << 20;
  const auto without = value_of(plan_engine_memory(fixture("llama2"), kOptions, limit));
  const MemoryBeside beside{.constraints_bytes = int64_t{1} << 20};
  const auto with = value_of(plan_engine_memory(fixture("llama2"), kOptions, limit, beside));
  EXPECT_EQ(without.constraints_bytes, 0);
  EXPECT_EQ(with.constraints_bytes, int64_t{1} << 20);
  EXPECT_LE(with.total_bytes(), limit);
  EXPECT_LT(with.kv_block_count, without.kv_block_count);
  const auto refused = plan_engine_memory(fixture("llama2"), kOptions, limit,
                                          {.constraints_bytes = int64_t{3} << 20});
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().message.find("constraints 3"), std::string::npos)
      << refused.error().message;
}

TEST(EngineMemory, WhatReadsImagesTakesItsShareOfTheLimit) {
  const int64_t limit = int64_t{3} << 20;
  const auto without = value_of(plan_engine_memory(fixture("llama2"), kOptions, limit));
  const MemoryBeside beside{.images_bytes = int64_t{1} << 20};
  const auto with = value_of(plan_engine_memory(fixture("llama2"), kOptions, limit, beside));
  EXPECT_LE(with.total_bytes(), limit);
  EXPECT_LT(with.kv_block_count, without.kv_block_count);
  const auto refused =
      plan_engine_memory(fixture("llama2"), kOptions, limit, {.images_bytes = int64_t{3} << 20});
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().message.find("reading images 3"), std::string::npos)
      << refused.error().message;
}

TEST(EngineMemory, AdaptersTakeTheirShareOfTheLimit) {
  const AdapterFolders adapters("llama2");
  const int64_t limit = int64_t{3} << 20;
  const auto without = value_of(plan_engine_memory(fixture("llama2"), kOptions, limit));
  model::InferenceOptions options = kOptions;
  options.adapters = adapters.sources;
  const auto with = value_of(plan_engine_memory(fixture("llama2"), options, limit));
  EXPECT_EQ(without.adapters_bytes, 0);
  EXPECT_GT(with.adapters_bytes, 3 * 64);
  EXPECT_LE(with.total_bytes(), limit);
  EXPECT_LT(with.kv_block_count, without.kv_block_count);

  options.kv_block_count = with.kv_block_count;
  options.memory_bytes_max = with.total_bytes();
  CpuDevice device({.thread_count = 1});
  const auto model = value_of(model::InferenceModel::load(fixture("llama2"), device, options));
  EXPECT_EQ(model->peak_bytes(), with.total_bytes());
}

TEST(EngineMemory, NamesTheLeastLimitThatWorks) {
  const auto refused = plan_engine_memory(fixture("llama2"), kOptions, 1000);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Code::kExhausted);
  const std::string& message = refused.error().message;
  const size_t at = message.find("at least ");
  ASSERT_NE(at, std::string::npos) << message;
  EXPECT_NE(message.find("a shorter --context"), std::string::npos) << message;
  const int64_t least = std::stoll(message.substr(at + 9));
  EXPECT_EQ(value_of(plan_engine_memory(fixture("llama2"), kOptions, least)).kv_block_count, 4);
  EXPECT_FALSE(plan_engine_memory(fixture("llama2"), kOptions, least - 1));
}

TEST(EngineMemory, ReportsWhatIsWrongWithTheFolder) {
  EXPECT_FALSE(plan_engine_memory("/no/such/folder", kOptions, 1 << 30));
  const auto bad = plan_engine_memory(fixture("llama2"), {.context_max = 1 << 20}, 1 << 30);
  ASSERT_FALSE(bad);
  EXPECT_EQ(bad.error().code, Code::kInvalidArgument);
}

}  // namespace
}  // namespace jige::serve
