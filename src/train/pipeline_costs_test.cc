#include "train/pipeline_costs.h"

#include <gtest/gtest.h>

#include "model/memory_plan.h"
#include "model/weights_copy.h"
#include "train/logical_device.h"
#include "train/test_support.h"

namespace jige::train {
namespace {

constexpr int64_t kCostTokens = 512;

std::unique_ptr<const model::Architecture> tiny_model(bool tied) {
  formats::ModelConfig config = tiny_config();
  config.tied_embeddings = tied;
  return *model::Architecture::create(config);
}

TEST(PipelineCosts, BytesAreTheModelsOwn) {
  for (const bool tied : {false, true}) {
    const auto architecture = tiny_model(tied);
    for (const DType compute : {DType::kF32, DType::kBF16}) {
      const model::WeightsOptions weights{.compute = compute, .position_count = 64};
      const plan::PipelineCosts costs = pipeline_costs(
          *architecture, weights, {.micro_batch_tokens = kCostTokens, .micro_batches = 3});
      const model::TrainingMemory memory =
          model::training_memory(*architecture, weights, kCostTokens);
      ASSERT_EQ(costs.blocks.size(), architecture->node_count());
      int64_t parameters = 0;
      for (size_t b = 0; b < costs.blocks.size(); ++b) {
        const plan::BlockCost& block = costs.blocks[b];
        EXPECT_GE(block.saved_bytes, memory.buffers.saved_bytes[b]);
        EXPECT_LT(block.saved_bytes, memory.buffers.saved_bytes[b] + 64);
        EXPECT_EQ(block.input_bytes, b == 0 ? 0 : kCostTokens * 32 * 4);
        EXPECT_EQ(block.parameter_bytes, model::copy_bytes(*architecture, weights, b));
        parameters += block.parameters;
      }
      // A tied head reads the embedding's table, which is updated once; every tensor of this model
      // is whole cache lines.
      EXPECT_EQ(parameters, memory.weights.trainable_count);
      EXPECT_GE(costs.workspace_bytes, memory.buffers.workspace_bytes + 3 * 4 * kCostTokens * 4);
    }
  }
}

TEST(PipelineCosts, TimesFollowOperationsAndRate) {
  const auto architecture = tiny_model(false);
  const plan::PipelineCosts costs =
      pipeline_costs(*architecture, {.position_count = 64},
                     {.micro_batch_tokens = kCostTokens, .device_flops = 1e9});
  double forward = 0;
  for (const plan::BlockCost& block : costs.blocks) forward += block.forward_s;
  EXPECT_NEAR(forward * 1e9, architecture->forward_flops(kCostTokens, 32), 1);
}

}  // namespace
}  // namespace jige::train
