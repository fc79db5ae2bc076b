// What an engine tells of requests that are no longer like those of its plan.
#include <gtest/gtest.h>

#include <thread>

#include "serve/engine_test_support.h"

namespace jige::serve {
namespace {

using testing::alone;
using testing::KeepingSink;
using testing::Loaded;
using testing::value_of;

EngineRequest drift_request(int64_t answer_tokens) {
  EngineRequest request;
  request.prompt = {3, 4, 5, 6, 7};
  request.tokens_max = answer_tokens;
  request.ignore_eos = true;
  return request;
}

TEST(EngineDrift, IsToldAndTakenBackAndChangesNoAnswer) {
  Loaded loaded("llama2", {.kv_block_count = 40, .batch_tokens_max = 64});
  EngineOptions options;
  options.planned_load = {.prompt_tokens = std::vector<double>(plan::kLengthQuantiles, 5),
                          .answer_tokens = std::vector<double>(plan::kLengthQuantiles, 3)};
  options.drift = {.window = 4, .step = 1};
  const auto engine = value_of(Engine::create(*loaded.model, loaded.tokenizer, options));
  const auto run = [&](int64_t answer_tokens) {
    const EngineRequest request = drift_request(answer_tokens);
    const auto sink = std::make_shared<KeepingSink>();
    EXPECT_GT(value_of(engine->submit(request, sink)), 0);
    ASSERT_TRUE(sink->wait());
    EXPECT_EQ(sink->outcome, alone(loaded, request));
  };
  // What was published behind the end of the last request.
  const auto state = [&] {
    EXPECT_TRUE(engine->status().drift);
    while (engine->status(true).requests.size() > 0) std::this_thread::yield();
    return engine->status().drift.value_or(plan::DriftState{});
  };
  for (int i = 0; i < 3; ++i) run(3);
  EXPECT_EQ(state().looks, 0);
  run(3);
  EXPECT_EQ(state().looks, 1);
  EXPECT_FALSE(state().drifted);
  EXPECT_GT(state().rate_per_s, 0);
  for (int i = 0; i < 2; ++i) run(7);
  EXPECT_TRUE(state().drifted);
  EXPECT_EQ(state().answer_tokens_mean, 5);
  EXPECT_EQ(state().prompt_distance, 0);
  EXPECT_EQ(state().answer_distance, 0.5);
  for (int i = 0; i < 4; ++i) run(3);
  EXPECT_FALSE(state().drifted);
}

TEST(EngineDrift, WithoutAPlanThereIsNothingToDifferFrom) {
  Loaded loaded("llama2", {.kv_block_count = 40, .batch_tokens_max = 64});
  const auto engine = value_of(Engine::create(*loaded.model, loaded.tokenizer, {}));
  EXPECT_FALSE(engine->status().drift);
}

// Requests that somebody gives up say nothing of how long answers are.
TEST(EngineDrift, CancelledRequestsDoNotCount) {
  Loaded loaded("llama2", {.kv_block_count = 40, .batch_tokens_max = 64});
  testing::Gate gate;
  EngineOptions options;
  options.planned_load = {.prompt_tokens = std::vector<double>(plan::kLengthQuantiles, 5),
                          .answer_tokens = std::vector<double>(plan::kLengthQuantiles, 3)};
  options.drift = {.window = 1, .step = 1};
  options.faults.before_forward = gate.hook();
  const auto engine = value_of(Engine::create(*loaded.model, loaded.tokenizer, options));
  const auto sink = std::make_shared<KeepingSink>();
  const RequestId id = value_of(engine->submit(drift_request(20), sink));
  gate.wait_until_held();
  engine->cancel(id);
  gate.open();
  ASSERT_TRUE(sink->wait());
  ASSERT_TRUE(engine->drain(20));
  EXPECT_EQ(engine->status().drift.value_or(plan::DriftState{.looks = 9}).looks, 0);
}

}  // namespace
}  // namespace jige::serve
