// The engine's first contract: whatever runs beside a request, and however it is cut, cached,
// forked or preempted, its bits are those of running alone.
#include <algorithm>

#include "serve/engine_test_support.h"

namespace jige::serve {
namespace {

using plan::Admission;
using plan::ServePolicy;
using testing::alone;
using testing::expect_clean;
using testing::Gate;
using testing::KeepingSink;
using testing::Loaded;
using testing::Outcome;
using testing::random_request;
using testing::sink_for;
using testing::value_of;

const model::InferenceOptions kBitsModel = {.kv_block_count = 80, .batch_tokens_max = 64};
const model::InferenceOptions kByteCacheModel = {
    .kv_dtype = DType::kI8, .kv_block_count = 80, .batch_tokens_max = 64, .logit_rows_max = 24};

struct Trace {
  std::vector<EngineRequest> requests;
  std::vector<Outcome> expected;
};

Trace random_trace(Loaded& loaded, uint64_t seed, int count) {
  Rng rng(derive_key(seed, "trace"));
  Trace trace;
  for (int i = 0; i < count; ++i) trace.requests.push_back(random_request(rng));
  for (const EngineRequest& request : trace.requests) {
    trace.expected.push_back(alone(loaded, request));
  }
  return trace;
}

EngineStatus run_and_compare(Loaded& loaded, const Trace& trace, const EngineOptions& options) {
  return testing::expect_outcomes(loaded, trace.requests, trace.expected, options);
}

TEST(EngineBits, NeighboursAndChunksDoNotMatter) {
  Loaded loaded("llama3", kBitsModel);
  const Trace trace = random_trace(loaded, 1, 14);
  for (const int32_t batch_tokens : {7, 64, 512}) {
    const EngineStatus status =
        run_and_compare(loaded, trace, {.batch_tokens_max = batch_tokens, .prefix_cache = false});
    EXPECT_EQ(status.counters.prefix_query_tokens, 0);
    EXPECT_EQ(status.counters.preemptions, 0);
  }
}

TEST(EngineBits, PoliciesDoNotMatter) {
  Loaded loaded("mistral", kBitsModel);  // with a sliding window
  const Trace trace = random_trace(loaded, 2, 12);
  for (const ServePolicy policy : plan::kServePolicies) {
    for (const int32_t requests : {1, 3, 64}) {
      run_and_compare(loaded, trace,
                      {.policy = policy, .batch_requests_max = requests, .round_steps = 4});
    }
  }
}

TEST(EngineBits, TheEngineAloneAgreesWithTheGenerator) {
  for (const char* name : {"gpt2", "qwen3", "gemma2", "gemma3", "gemma4", "gemma4_moe",
                           "gemma4_layer_inputs", "gemma3n", "llama4", "gpt_neox", "phi",
                           "cohere_qk_norm", "mellum", "granite_swa_turned", "mistral4"}) {
    Loaded loaded(name, kBitsModel);
    Trace trace = random_trace(loaded, 3, 5);
    for (size_t i = 0; i < trace.requests.size(); ++i) {
      run_and_compare(loaded, {{trace.requests[i]}, {trace.expected[i]}}, {});
    }
  }
}

void expect_cached_prefixes_do_not_matter(const model::InferenceOptions& options) {
  Loaded loaded("llama3", options);
  Trace trace = random_trace(loaded, 4, 6);
  // The same again, and what a chat's next turn sends: prompt, answer and more.
  for (size_t i = 0; i < 6; ++i) {
    EngineRequest next = trace.requests[i];
    trace.requests.push_back(next);
    trace.expected.push_back(trace.expected[i]);
    const auto& tokens = trace.expected[i][0].tokens;
    next.prompt.insert(next.prompt.end(), tokens.begin(), tokens.end());
    next.prompt.insert(next.prompt.end(), {11, 12, 13});
    trace.expected.push_back(alone(loaded, next));
    trace.requests.push_back(std::move(next));
  }
  const EngineStatus status = run_and_compare(loaded, trace, {.batch_requests_max = 2});
  EXPECT_GT(status.counters.prefix_hit_tokens, 100);
  EXPECT_GT(status.counters.prefix_query_tokens, status.counters.prefix_hit_tokens);
  EXPECT_GT(status.kv_blocks_cached, 0);
}

TEST(EngineBits, CachedPrefixesDoNotMatter) { expect_cached_prefixes_do_not_matter(kBitsModel); }

void expect_preemption_does_not_matter(model::InferenceOptions options) {
  options.kv_block_count = 18;
  Loaded loaded("qwen2", options);
  const Trace trace = random_trace(loaded, 5, 16);
  for (const ServePolicy policy :
       {ServePolicy::kOrca, ServePolicy::kChunked, ServePolicy::kRounds}) {
    for (const bool prefix_cache : {false, true}) {
      const EngineStatus status = run_and_compare(loaded, trace,
                                                  {.policy = policy,
                                                   .admission = Admission::kOptimistic,
                                                   .round_steps = 2,
                                                   .prefix_cache = prefix_cache});
      EXPECT_GT(status.counters.preemptions, 0) << "the pool is too large for this test";
    }
  }
}

TEST(EngineBits, PreemptionDoesNotMatter) { expect_preemption_does_not_matter(kBitsModel); }

// Rows are rounded as they are appended, each by itself: the contract is the same.
TEST(EngineBits, ACacheIn8BitsIsUnderTheSameContract) {
  for (const char* name : {"llama3", "mistral", "gpt_oss"}) {  // all keys, windows, sinks
    Loaded loaded(name, kByteCacheModel);
    Loaded whole(name, kBitsModel);
    const Trace trace = random_trace(loaded, 7, 12);
    EXPECT_NE(trace.expected, random_trace(whole, 7, 12).expected) << "the same as without";
    for (const int32_t batch_tokens : {7, 64}) {
      run_and_compare(loaded, trace, {.batch_tokens_max = batch_tokens, .prefix_cache = false});
    }
    for (const ServePolicy policy : plan::kServePolicies) {
      run_and_compare(loaded, trace, {.policy = policy, .batch_requests_max = 3});
    }
  }
  expect_cached_prefixes_do_not_matter(kByteCacheModel);
  expect_preemption_does_not_matter(kByteCacheModel);
}

TEST(EngineBits, DraftsOverACacheIn8BitsDoNotMatter) {
  Loaded loaded("llama3", kByteCacheModel);
  Trace trace;
  for (int32_t i = 0; i < 8; ++i) {
    EngineRequest request;
    for (int32_t at = 0; at < 40; ++at) request.prompt.push_back(20 + i + at % 3);
    // Half of the answers go on as the prompt did, the others differ from what is guessed.
    if (i % 2 == 0) {
      for (int32_t at = 0; at < 3; ++at) request.sampling.logit_bias.push_back({20 + i + at, 30});
    }
    request.sampling.temperature = 0.8;
    request.seed = static_cast<uint64_t>(i);
    request.tokens_max = 30;
    request.ignore_eos = true;
    trace.expected.push_back(alone(loaded, request));
    trace.requests.push_back(std::move(request));
  }
  const EngineStatus status =
      run_and_compare(loaded, trace, {.drafts = {.tokens_max = 4, .adaptive = false}});
  EXPECT_GT(status.counters.accepted_tokens, 0);
  EXPECT_GT(status.counters.drafted_tokens, status.counters.accepted_tokens);
}

TEST(EngineBits, CancelledNeighboursDoNotMatter) {
  Loaded loaded("llama3", kBitsModel);
  const Trace trace = random_trace(loaded, 6, 12);
  for (const Admission admission : {Admission::kReserve, Admission::kOptimistic}) {
    Gate gate;
    EngineOptions options{.admission = admission, .batch_tokens_max = 20};
    options.faults.before_forward = gate.hook();
    const auto engine = value_of(Engine::create(*loaded.model, loaded.tokenizer, options));
    std::vector<std::shared_ptr<KeepingSink>> sinks;
    std::vector<RequestId> ids(trace.requests.size());
    for (size_t i = 0; i < trace.requests.size(); ++i) {
      sinks.push_back(sink_for(trace.requests[i]));
      // Every third is cancelled by its own sink, at some token.
      if (i % 3 == 1) {
        sinks[i]->when_piece = [&, i](int count) {
          if (count == static_cast<int>(i) / 2) engine->cancel(ids[i]);
        };
      }
      ids[i] = value_of(engine->submit(trace.requests[i], sinks[i]));
      if (i == 0) gate.wait_until_held();
    }
    engine->cancel(ids[2]);  // before it has begun
    gate.open();
    for (size_t i = 0; i < sinks.size(); ++i) {
      ASSERT_TRUE(sinks[i]->wait());
      if (i == 2) {
        EXPECT_EQ(sinks[i]->outcome[0].finish, FinishReason::kCancelled);
      } else if (i % 3 != 1) {
        EXPECT_EQ(sinks[i]->outcome, trace.expected[i]) << "request " << i;
      }
    }
    EXPECT_TRUE(engine->drain(20));
    expect_clean(*engine);
  }
}

TEST(EngineBits, ChoicesShareOnePrefillAndKeepTheirOwnStreams) {
  Loaded loaded("llama3", kBitsModel);
  EngineRequest request;
  for (int32_t i = 0; i < 37; ++i) request.prompt.push_back(5 + i);  // ends within a block
  request.sampling.temperature = 1;
  request.seed = 9;
  request.tokens_max = 25;
  request.ignore_eos = true;
  request.choice_count = 5;
  const Outcome expected = alone(loaded, request);
  EXPECT_NE(expected[0].tokens, expected[1].tokens);
  const EngineStatus status = run_and_compare(loaded, {{request}, {expected}}, {});
  // The prompt once, and each answer but its last token.
  EXPECT_EQ(status.counters.computed_tokens, 37 + 5 * 24);
  EXPECT_EQ(status.counters.generated_tokens, 5 * 25);
  EXPECT_EQ(status.counters.prompt_tokens, 37);
}

}  // namespace
}  // namespace jige::serve
