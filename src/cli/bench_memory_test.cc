// That the benchmarks keep to a limit of memory, to the byte.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "cli/bench.h"
#include "cli/model_sizes.h"
#include "model/memory_plan.h"
#include "ops/linear.h"

namespace jige::cli {
namespace {

TEST(BenchMemory, TrainingTakesTheLimitAndNoByteMore) {
  BenchOptions options{.context = 16, .batch_tokens = 48, .seconds = 0};
  options.config = *make_llama_config({.size = "tiny"}, 300);
  const auto architecture = *model::Architecture::create(options.config);
  const model::TrainingMemory memory = model::training_memory(
      *architecture,
      {.compute = options.dtype, .use = model::PackFor::kTraining, .position_count = 16}, 48);
  CpuDevice device({.thread_count = 1});
  int measured = 0;
  const auto run = [&](int64_t limit) {
    options.memory_bytes_max = limit;
    return bench_train(device, options, {}, [&](const Measurement&) { ++measured; });
  };
  const Status fits = run(memory.total_bytes());
  EXPECT_TRUE(fits) << fits.error().message;
  EXPECT_EQ(measured, 2);

  const Status refused = run(memory.total_bytes() - 1);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Code::kExhausted);
  EXPECT_THAT(refused.error().message, testing::HasSubstr("smaller --batch-tokens"));
  EXPECT_EQ(measured, 2);
}

// What the benchmark takes at most, by its refusal of one byte less.
void expect_limit_kept(int64_t bytes, BenchOptions options, Status (*check)(const BenchOptions&),
                       const char* remedy) {
  options.memory_bytes_max = bytes;
  EXPECT_TRUE(check(options));
  options.memory_bytes_max = bytes - 1;
  const Status refused = check(options);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Code::kExhausted);
  EXPECT_THAT(refused.error().message, testing::HasSubstr(remedy));
}

TEST(BenchMemory, ProductsAndAttentionTakeTheLimitAndNoByteMore) {
  CpuDevice device({.thread_count = 1});
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    BenchOptions options{.dtype = dtype, .context = 16, .batch_tokens = 48, .seconds = 0};
    options.config = *make_llama_config({.size = "tiny"}, 300);
    const int64_t size = dtype_bytes(dtype, 1);
    const auto sink = [](const Measurement&) {};

    const int64_t q = 48 * options.config.head_count * options.config.head_dim;
    const int64_t kv = 48 * options.config.kv_head_count * options.config.head_dim;
    const int64_t making = dtype == DType::kF32 ? 0 : size * (q + kv) + (4 + size) * kv;
    const int64_t attention = std::max(making, size * 2 * (q + kv));
    expect_limit_kept(attention, options, check_attention_memory, "smaller --batch-tokens");
    options.memory_bytes_max = attention;
    EXPECT_TRUE(bench_attention(device, options, {}, sink));

    // The weights of the widest product, in f32 and packed, and its rows, or what making them
    // takes.
    const int64_t row_making = 4096 * (dtype == DType::kF32 ? 4 : 4 + size);
    const auto gemm = [&](int64_t outputs) {
      return 4 * 4096 * outputs +
             ops::packed_weight_bytes(dtype, ops::PackUse::kForward, outputs, 4096) +
             std::max(row_making, size * (4096 + outputs));
    };
    expect_limit_kept(gemm(16384), options, check_gemm_memory, "attention, inference, train");
    options.square_columns = 500;
    options.wide_outputs = 1152;  // still the widest
    options.memory_bytes_max = gemm(options.wide_outputs);
    const Status fits = bench_gemm(device, options, {}, sink);
    EXPECT_TRUE(fits) << fits.error().message;
  }
}

}  // namespace
}  // namespace jige::cli
