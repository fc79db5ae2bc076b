// That the benchmarks of models keep to a limit of memory, to the byte.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cli/bench.h"
#include "cli/model_sizes.h"
#include "model/memory_plan.h"

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

}  // namespace
}  // namespace jige::cli
