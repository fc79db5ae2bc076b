#include "serve/layer_fit.h"

#include <string>
#include <vector>

#include "base/bytes.h"
#include "plan/streamed_layers.h"
#include "serve/draft_model_plan.h"
#include "serve/engine_memory.h"
#include "serve/score_memory.h"
#include "serve/serve_test_support.h"

namespace jige::serve {
namespace {

using testing::fixture;
using testing::value_of;

// Four layers.
constexpr const char* kFourLayers = "exaone4";

model::InferenceOptions fit_options() {
  return {.compute = DType::kF32, .context_max = 32, .batch_tokens_max = 16};
}

// Bytes on the device by layers that stay, of the arena of a model that is loaded so.
std::vector<int64_t> peaks_by_resident() {
  std::vector<int64_t> bytes;
  CpuDevice device({.thread_count = 1});
  for (int64_t resident = 0; resident <= 4; ++resident) {
    const auto options = value_of(fit_layers(fixture(kFourLayers), fit_options(),
                                             {.resident_layers = resident}, DeviceKind::kCpu));
    EXPECT_EQ(options.streamed_layers, plan::streamed_layers(4, resident));
    bytes.push_back(
        value_of(model::InferenceModel::load(fixture(kFourLayers), device, options))->peak_bytes());
  }
  return bytes;
}

TEST(LayerFit, KeepsAsManyLayersAsFitToTheByte) {
  const std::vector<int64_t> bytes = peaks_by_resident();
  // Two slots hold two layers; as many streams would save nothing.
  EXPECT_LT(bytes[0], bytes[1]);
  EXPECT_LT(bytes[1], bytes[2]);
  EXPECT_LE(bytes[4], bytes[2]);
  const auto resident = [&](int64_t limit) {
    const auto options = value_of(
        fit_layers(fixture(kFourLayers), fit_options(), {.device_bytes = limit}, DeviceKind::kCpu));
    EXPECT_EQ(options.memory_bytes_max, limit);
    return 4 - std::ssize(options.streamed_layers);
  };
  EXPECT_EQ(resident(bytes[4]), 4);
  EXPECT_EQ(resident(bytes[4] - 1), 1);
  EXPECT_EQ(resident(bytes[1]), 1);
  EXPECT_EQ(resident(bytes[1] - 1), 0);
  EXPECT_EQ(resident(bytes[0]), 0);
  // Nothing streams where nobody said what there is.
  const auto free = value_of(fit_layers(fixture(kFourLayers), fit_options(), {}, DeviceKind::kCpu));
  EXPECT_TRUE(free.streamed_layers.empty());
}

TEST(LayerFit, NamesTheNumbersWhereNotEvenThatFits) {
  const int64_t least = peaks_by_resident()[0];
  const auto refused = fit_layers(fixture(kFourLayers), fit_options(), {.device_bytes = least - 1},
                                  DeviceKind::kCpu);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Code::kExhausted);
  const std::string& message = refused.error().message;
  const std::vector<std::string> parts = {kFourLayers, "no layer of 4 on the GPU",
                                          format_bytes(least - 1), "--device-memory"};
  for (const std::string& part : parts) {
    EXPECT_NE(message.find(part), std::string::npos) << part << " in: " << message;
  }
  const auto asked = fit_layers(fixture(kFourLayers), fit_options(),
                                {.device_bytes = least, .resident_layers = 2}, DeviceKind::kCpu);
  ASSERT_FALSE(asked);
  EXPECT_NE(asked.error().message.find("2 layers of 4"), std::string::npos)
      << asked.error().message;
  const auto host = fit_layers(fixture(kFourLayers), fit_options(),
                               {.resident_layers = 1, .host_bytes = 1000}, DeviceKind::kCpu);
  ASSERT_FALSE(host);
  EXPECT_EQ(host.error().code, Code::kExhausted);
  EXPECT_NE(host.error().message.find("3 layers that stream"), std::string::npos)
      << host.error().message;
  const auto more =
      fit_layers(fixture(kFourLayers), fit_options(), {.resident_layers = 5}, DeviceKind::kCpu);
  ASSERT_FALSE(more);
  EXPECT_EQ(more.error().code, Code::kInvalidArgument);
}

TEST(LayerFit, LeavesRoomForADraftModel) {
  const int64_t whole = peaks_by_resident()[4];
  const auto draft = value_of(DraftModelPlan::create(fixture("llama2"), {.context_max = 32}));
  const LayerBudget budget{.device_bytes = whole + draft.bytes(2), .draft_model = &draft};
  EXPECT_TRUE(value_of(fit_layers(fixture(kFourLayers), fit_options(), budget, DeviceKind::kCpu))
                  .streamed_layers.empty());
  LayerBudget less = budget;
  --less.device_bytes;
  const auto options =
      value_of(fit_layers(fixture(kFourLayers), fit_options(), less, DeviceKind::kCpu));
  EXPECT_FALSE(options.streamed_layers.empty());
  EXPECT_EQ(options.memory_bytes_max, whole - 1);
}

// The engine's memory for a limit, and that a model loaded so takes it to the byte.
EngineMemory engine_memory(int64_t limit, const EngineLayers& layers) {
  model::InferenceOptions options = fit_options();
  const EngineMemory memory = value_of(
      plan_engine_memory(fixture(kFourLayers), options, limit, {}, DeviceKind::kCpu, layers));
  memory.choose(options);
  options.memory_bytes_max = memory.total_bytes();
  CpuDevice device({.thread_count = 1});
  const auto model = value_of(model::InferenceModel::load(fixture(kFourLayers), device, options));
  EXPECT_EQ(model->peak_bytes(), memory.total_bytes());
  return memory;
}

TEST(LayerFit, AnEngineSharesWhatIsLeftBetweenContextsAndLayers) {
  const std::vector<int64_t> bytes = peaks_by_resident();
  bool some_stay = false;
  for (int64_t limit = bytes[0]; limit < bytes[4]; limit += 2999) {
    const EngineMemory memory =
        engine_memory(limit, {.budget = {.device_bytes = limit}, .contexts_max = 16});
    EXPECT_LE(memory.total_bytes(), limit);
    EXPECT_GE(memory.full_contexts, 1);
    EXPECT_LE(memory.full_contexts, 16);
    EXPECT_GT(memory.streamed_layers.size(), 2u);
    // What is left is less than a block, but where there are as many contexts as are wanted.
    if (memory.full_contexts < 16) {
      EXPECT_GT(memory.total_bytes() + memory.kv_bytes / memory.kv_block_count + 1024, limit);
    }
    // Contexts beyond the first took half of what there was, or what no layer fits into.
    const int64_t context_bytes = memory.kv_bytes - 2 * memory.kv_bytes / memory.kv_block_count;
    const int64_t layer_bytes = bytes[1] - bytes[0];
    EXPECT_LE(context_bytes, (limit - bytes[0]) / 2 + layer_bytes) << limit;
    some_stay = some_stay || memory.streamed_layers.size() < 4;
  }
  EXPECT_TRUE(some_stay);
  // All layers stay where one context fits with them, and nothing streams where it may not.
  const EngineMemory whole =
      engine_memory(bytes[4], {.budget = {.device_bytes = bytes[4]}, .contexts_max = 16});
  EXPECT_TRUE(whole.streamed_layers.empty());
  const auto refused = plan_engine_memory(fixture(kFourLayers), fit_options(), bytes[4] - 1);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Code::kExhausted);
  EXPECT_FALSE(plan_engine_memory(fixture(kFourLayers), fit_options(), bytes[0] - 1, {},
                                  DeviceKind::kCpu, {.budget = {.device_bytes = bytes[0] - 1}}));
  // A smaller limit is for what does not stream alone.
  const EngineMemory beyond =
      engine_memory(bytes[4] - 1, {.budget = {.device_bytes = bytes[4]}, .contexts_max = 16});
  EXPECT_TRUE(beyond.streamed_layers.empty());
  EXPECT_GT(beyond.total_bytes(), bytes[4] - 1);
}

TEST(LayerFit, AnEngineStreamsTheLayersThatAreAskedFor) {
  const int64_t limit = 2 * peaks_by_resident()[4];
  for (int64_t resident = 0; resident <= 4; ++resident) {
    const EngineMemory memory =
        engine_memory(limit, {.budget = {.device_bytes = limit, .resident_layers = resident}});
    EXPECT_EQ(memory.streamed_layers, plan::streamed_layers(4, resident));
    EXPECT_GT(memory.full_contexts, 1);
  }
}

TEST(LayerFit, ScoringTakesItsCacheBeforeLayers) {
  const std::vector<int64_t> bytes = peaks_by_resident();
  const LayerBudget budget{.device_bytes = bytes[4] - 1};
  const auto options =
      value_of(options_for_scores(fixture(kFourLayers), fit_options(), DeviceKind::kCpu, budget));
  EXPECT_GT(options.kv_block_count, 2);
  const auto fitted = value_of(fit_layers(fixture(kFourLayers), options, budget, DeviceKind::kCpu));
  EXPECT_FALSE(fitted.streamed_layers.empty());
  CpuDevice device({.thread_count = 1});
  const auto model = value_of(model::InferenceModel::load(fixture(kFourLayers), device, fitted));
  EXPECT_LE(model->peak_bytes(), budget.device_bytes);
}

}  // namespace
}  // namespace jige::serve
