// Requests of several adapters in one engine: each has the bits that it has alone, and finds its
// own cached beginnings only.
#include <gmock/gmock.h>

#include "serve/adapter_folders.h"
#include "serve/engine_test_support.h"
#include "serve/event_replay.h"

namespace jige::serve {
namespace {

using testing::AdapterFolders;
using testing::alone;
using testing::KeepingSink;
using testing::Loaded;
using testing::Outcome;
using testing::random_request;
using testing::sink_for;
using testing::value_of;

// A model with three adapters.
struct Adapted {
  explicit Adapted(const std::string& name, ops::WeightFormat format = ops::WeightFormat::kCompute)
      : folders(name),
        loaded(name, {.format = format,
                      .kv_block_count = 80,
                      .state_count = 8,  // of models with recurrent layers
                      .batch_tokens_max = 64,
                      .logit_rows_max = 16,
                      .adapters = folders.sources}) {}
  AdapterFolders folders;
  Loaded loaded;
};

EngineRequest request_for(int32_t adapter) {
  EngineRequest request;
  for (int32_t i = 0; i < 40; ++i) request.prompt.push_back(5 + i);
  request.tokens_max = 20;
  request.ignore_eos = true;
  request.adapter = adapter;
  return request;
}

Outcome answer_of(Engine& engine, const EngineRequest& request) {
  const auto sink = sink_for(request);
  value_of(engine.submit(request, sink));
  EXPECT_TRUE(sink->wait());
  EXPECT_FALSE(sink->error);
  return sink->outcome;
}

// What each of the requests gives alone.
std::vector<Outcome> each_alone(Loaded& loaded, const std::vector<EngineRequest>& requests) {
  std::vector<Outcome> outcomes;
  for (const EngineRequest& request : requests) outcomes.push_back(alone(loaded, request));
  return outcomes;
}

std::vector<EngineRequest> random_requests(uint64_t seed, int count) {
  Rng rng(derive_key(seed, "adapter trace"));
  std::vector<EngineRequest> requests;
  for (int i = 0; i < count; ++i) {
    requests.push_back(random_request(rng));
    requests.back().adapter = static_cast<int32_t>(rng.below(4)) - 1;
  }
  return requests;
}

// Adapters over 4 bits see every policy and every size of a batch, in turn.
TEST(EngineAdapters, NeighboursOfOtherAdaptersDoNotMatter) {
  size_t turn = 0;
  for (const auto format : {ops::WeightFormat::kCompute, ops::WeightFormat::kQ4}) {
    Adapted adapted("llama3", format);
    const auto requests = random_requests(1, 14);
    const auto expected = each_alone(adapted.loaded, requests);
    for (const int32_t batch_tokens : {7, 64, 512}) {
      for (const plan::ServePolicy policy : plan::kServePolicies) {
        if (format == ops::WeightFormat::kQ4 && turn++ % 3 != 0) continue;
        testing::expect_outcomes(
            adapted.loaded, requests, expected,
            {.policy = policy, .batch_tokens_max = batch_tokens, .fair_share = true});
      }
    }
  }
}

// A policy for each model, in turn.
TEST(EngineAdapters, StatesOfOtherAdaptersDoNotMatter) {
  size_t turn = 0;
  for (const char* fixture : {"qwen3_5", "lfm2", "qwen3_5_moe", "falcon_h1", "olmo_hybrid", "lfm3",
                              "falcon_mamba", "jamba_dense", "kimi_linear"}) {
    Adapted adapted(fixture);
    auto requests = random_requests(3, 4);
    for (int32_t adapter = model::kNoAdapter; adapter < 3; ++adapter) {
      requests.push_back(request_for(adapter));
      requests.push_back(request_for(adapter));
    }
    const auto expected = each_alone(adapted.loaded, requests);
    const plan::ServePolicy policy = plan::kServePolicies[turn++ % std::size(plan::kServePolicies)];
    const EngineStatus status =
        testing::expect_outcomes(adapted.loaded, requests, expected,
                                 {.policy = policy, .batch_tokens_max = 24, .kept_state_count = 4});
    EXPECT_GT(status.counters.prefix_hit_tokens, 0);
  }
}

TEST(EngineAdapters, GuessesDoNotMatter) {
  Adapted adapted("qwen3");
  auto requests = random_requests(2, 10);
  // Those that repeat themselves, so that guesses come true.
  for (int32_t adapter = model::kNoAdapter; adapter < 3; ++adapter) {
    requests.push_back(request_for(adapter));
    requests.back().prompt.assign(40, 9);
    requests.back().sampling.logit_bias = {{9, 80.0f}};
  }
  const EngineStatus status =
      testing::expect_outcomes(adapted.loaded, requests, each_alone(adapted.loaded, requests),
                               {.drafts = {.tokens_max = 4, .adaptive = false}});
  EXPECT_GT(status.counters.accepted_tokens, 20);
}

// Their keys and values differ: a beginning taken from another adapter changes the answer.
TEST(EngineAdapters, CachedBeginningsAreOfOneAdapterOnly) {
  Adapted adapted("llama3");
  std::vector<Outcome> expected;
  for (int32_t i = model::kNoAdapter; i < 3; ++i) {
    expected.push_back(alone(adapted.loaded, request_for(i)));
    for (size_t other = 0; other + 1 < expected.size(); ++other) {
      EXPECT_NE(expected.back(), expected[other]);
    }
  }
  const auto engine = value_of(Engine::create(*adapted.loaded.model, adapted.loaded.tokenizer));
  const auto hits = [&] { return engine->status().counters.prefix_hit_tokens; };
  for (const int32_t i : {0, model::kNoAdapter, 2, 1}) {
    EXPECT_EQ(answer_of(*engine, request_for(i)), expected[static_cast<size_t>(i + 1)]);
    EXPECT_EQ(hits(), 0) << "adapter " << i;
  }
  for (const int32_t i : {1, 2, 0, model::kNoAdapter}) {
    const int64_t before = hits();
    EXPECT_EQ(answer_of(*engine, request_for(i)), expected[static_cast<size_t>(i + 1)]);
    EXPECT_GE(hits() - before, 32) << "adapter " << i;
  }
}

// A replay that took them for one model would find cached beginnings that the run has not found.
TEST(EngineAdapters, ARecordedRunReplaysWithItsAdapters) {
  Adapted adapted("llama2");
  const std::string log = adapted.folders.path + "/events.jsonl";
  auto engine = value_of(
      Engine::create(*adapted.loaded.model, adapted.loaded.tokenizer, {.event_log_path = log}));
  for (const int32_t i : {0, model::kNoAdapter, 1, 0}) answer_of(*engine, request_for(i));
  EXPECT_TRUE(engine->drain(20));
  const int64_t iterations = engine->status().counters.iterations;
  engine.reset();
  EXPECT_EQ(value_of(replay_event_log(log)).batches, iterations);
}

TEST(EngineAdapters, ChoicesOfOnePromptShareItsAdapter) {
  Adapted adapted("gpt2");
  EngineRequest request = request_for(1);
  request.choice_count = 4;
  request.sampling.temperature = 1;
  const std::vector<EngineRequest> requests = {request_for(model::kNoAdapter), request,
                                               request_for(2)};
  testing::expect_outcomes(adapted.loaded, requests, each_alone(adapted.loaded, requests), {});
}

TEST(EngineAdapters, RequestsAreCountedByAdapter) {
  Adapted adapted("llama2");
  const auto engine = value_of(Engine::create(*adapted.loaded.model, adapted.loaded.tokenizer));
  for (const int32_t i : {0, 2, model::kNoAdapter, 2}) answer_of(*engine, request_for(i));
  EXPECT_THAT(engine->status().counters.requests_by_adapter,
              ::testing::ElementsAre(::testing::Pair(0, 1), ::testing::Pair(2, 2)));
  const auto refused = engine->submit(request_for(3), std::make_shared<KeepingSink>());
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Code::kInvalidArgument);
  EXPECT_EQ(refused.error().field, RequestField::kAdapter);
}

}  // namespace
}  // namespace jige::serve
