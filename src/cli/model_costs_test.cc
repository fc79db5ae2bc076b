#include "cli/model_costs.h"

#include <gtest/gtest.h>

#include "cli/model_sizes.h"
#include "model/architecture.h"
#include "model/memory_plan.h"

namespace jige::cli {
namespace {

TEST(ModelCosts, BytesAndParametersAreTheModelsOwn) {
  const ModelShape shape{.size = "tiny"};
  const auto config = make_llama_config(shape, base_size(shape).vocab_size);
  ASSERT_TRUE(config);
  const auto architecture = model::Architecture::create(*config);
  ASSERT_TRUE(architecture);
  for (const DType compute : {DType::kF32, DType::kBF16}) {
    const auto costs = model_costs(*config, {.micro_batch_tokens = 512, .compute = compute});
    ASSERT_TRUE(costs);
    const model::TrainingBuffers buffers = model::training_buffers(**architecture, compute, 512);
    ASSERT_EQ(costs->blocks.size(), buffers.saved_bytes.size());
    int64_t parameters = 0;
    for (size_t b = 0; b < costs->blocks.size(); ++b) {
      const plan::BlockCost& block = costs->blocks[b];
      EXPECT_EQ(block.saved_bytes, buffers.saved_bytes[b]);
      EXPECT_LE(block.pending_bytes, buffers.pending_bytes);
      EXPECT_EQ(block.input_bytes, b == 0 ? 0 : 512 * config->hidden_size * 4);
      EXPECT_EQ(block.gradient_bytes, block.parameter_bytes * (compute == DType::kF32 ? 1 : 2));
      parameters += block.parameters;
    }
    EXPECT_EQ(costs->workspace_bytes, buffers.workspace_bytes);
    // The tied head reads the embedding's table, which is updated once.
    const model::TrainingMemory memory =
        model::training_memory(**architecture, {.compute = compute, .position_count = 256}, 512);
    EXPECT_EQ(parameters, memory.weights.trainable_count);
    EXPECT_GT(costs->blocks.back().parameter_bytes, costs->blocks.back().parameters * 4);
  }
}

TEST(ModelCosts, TimesFollowOperationsAndRate) {
  const ModelShape shape{.size = "tiny"};
  const auto config = make_llama_config(shape, base_size(shape).vocab_size);
  const auto architecture = model::Architecture::create(*config);
  ASSERT_TRUE(architecture);
  const auto costs = model_costs(*config, {.micro_batch_tokens = 512, .device_flops = 1e9});
  ASSERT_TRUE(costs);
  double forward = 0;
  for (const plan::BlockCost& block : costs->blocks) forward += block.forward_s;
  EXPECT_NEAR(forward * 1e9, (*architecture)->forward_flops(512, 128), 1);
}

}  // namespace
}  // namespace jige::cli
