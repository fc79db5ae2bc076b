// Drafts in an engine: the same answers, whatever runs beside them and however they are cut,
// cached, forked or preempted; and what they may take.
#include "serve/engine_drafts.h"

#include <algorithm>
#include <atomic>
#include <limits>

#include "serve/draft_test_support.h"

namespace jige::serve {
namespace {

using plan::Admission;
using plan::ServePolicy;
using testing::alone;
using testing::cases_of;
using testing::DraftCase;
using testing::expect_clean;
using testing::expect_same;
using testing::KeepingSink;
using testing::Loaded;
using testing::Outcome;
using testing::sink_for;
using testing::value_of;

constexpr DraftOptions kDrafts[] = {{.tokens_max = 1, .adaptive = false},
                                    {.tokens_max = 4, .adaptive = false},
                                    {.tokens_max = 30, .adaptive = false},
                                    {.tokens_max = 8, .adaptive = true}};

TEST(EngineDrafts, ChangeNoBitUnderAnyPolicy) {
  int64_t accepted = 0;
  int64_t refused = 0;
  uint64_t seed = 0;
  for (const char* name : {"llama3", "mistral"}) {
    Loaded loaded(name, {.kv_block_count = 80, .batch_tokens_max = 64, .logit_rows_max = 24});
    const std::vector<DraftCase> cases = cases_of(loaded, seed++, 10);
    for (const DraftOptions& drafts : kDrafts) {
      for (const ServePolicy policy : plan::kServePolicies) {
        const auto status = expect_same(
            loaded, cases, {.policy = policy, .batch_requests_max = 7, .drafts = drafts});
        accepted += status.counters.accepted_tokens;
        refused += status.counters.drafted_tokens - status.counters.accepted_tokens;
      }
    }
  }
  EXPECT_GT(accepted, 150);
  EXPECT_GT(refused, 150);
}

TEST(EngineDrafts, ChangeNoBitInAnyNumbers) {
  for (const auto& [compute, format] : {std::pair{DType::kF32, ops::WeightFormat::kCompute},
                                        {DType::kBF16, ops::WeightFormat::kCompute},
                                        {DType::kBF16, ops::WeightFormat::kQ8},
                                        {DType::kF32, ops::WeightFormat::kQ4}}) {
    Loaded loaded("qwen3", {.compute = compute,
                            .format = format,
                            .kv_block_count = 80,
                            .batch_tokens_max = 64,
                            .logit_rows_max = 24});
    const std::vector<DraftCase> cases = cases_of(loaded, 7, 8);
    for (const int32_t batch_tokens : {9, 64}) {
      expect_same(
          loaded, cases,
          {.batch_tokens_max = batch_tokens, .drafts = {.tokens_max = 5, .adaptive = false}});
    }
  }
}

TEST(EngineDrafts, ChangeNoBitBesideKnownPrefixesAndPreemption) {
  Loaded loaded("qwen2", {.kv_block_count = 18, .batch_tokens_max = 64, .logit_rows_max = 24});
  const std::vector<DraftCase> cases = cases_of(loaded, 11, 16);
  for (const DraftOptions& drafts : kDrafts) {
    const EngineStatus status =
        expect_same(loaded, cases, {.admission = Admission::kOptimistic, .drafts = drafts});
    EXPECT_GT(status.counters.preemptions, 0) << "the pool is too large for this test";
    EXPECT_GT(status.counters.prefix_hit_tokens, 0);
  }
}

// What an answer with drafts leaves in the prefix cache is what it would leave without.
TEST(EngineDrafts, TheNextTurnOfAChatFindsOnlyWhatWasAccepted) {
  Loaded loaded("llama3", {.kv_block_count = 80, .batch_tokens_max = 64, .logit_rows_max = 24});
  std::vector<DraftCase> cases = cases_of(loaded, 13, 8);
  for (size_t i = 0; i < 8; ++i) {
    EngineRequest next = cases[i].request;
    const auto& tokens = cases[i].expected[0].tokens;
    next.prompt.insert(next.prompt.end(), tokens.begin(), tokens.end());
    next.prompt.insert(next.prompt.end(), {11, 12, 13});
    Outcome expected = alone(loaded, next);
    cases.push_back({std::move(next), std::move(expected)});
  }
  for (const DraftOptions& drafts : kDrafts) {
    const EngineStatus status =
        expect_same(loaded, cases, {.batch_requests_max = 2, .drafts = drafts});
    EXPECT_GT(status.counters.prefix_hit_tokens, 100);
  }
}

// What the generator does not know of: least lengths, and stops that are shown.
TEST(EngineDrafts, LeastLengthsAndShownStopsStay) {
  Loaded loaded("llama3", {.kv_block_count = 80, .batch_tokens_max = 64, .logit_rows_max = 24});
  std::vector<DraftCase> cases = cases_of(loaded, 17, 14);
  const auto plain = value_of(Engine::create(*loaded.model, loaded.tokenizer));
  int64_t accepted = 0;
  for (size_t i = 0; i < cases.size(); ++i) {
    EngineRequest& request = cases[i].request;
    request.tokens_min = std::min<int64_t>(request.tokens_max, 1 + static_cast<int64_t>(i) % 7);
    request.stop_ids = {24, 20};
    request.stop_strings = {"5", "99"};
    request.include_stop_string = i % 2 == 0;
    request.continues_text = i % 3 == 0;
    const auto sink = sink_for(request);
    value_of(plain->submit(request, sink));
    ASSERT_TRUE(sink->wait());
    cases[i].expected = sink->outcome;
  }
  plain->stop();
  for (const DraftOptions& drafts : kDrafts) {
    accepted += expect_same(loaded, cases, {.drafts = drafts}).counters.accepted_tokens;
  }
  EXPECT_GT(accepted, 10);
}

EngineRequest easy_request(int64_t tokens_max) {
  EngineRequest request;
  request.prompt.assign(20, 40);
  request.sampling.logit_bias = {{40, 100}};
  request.tokens_max = tokens_max;
  request.ignore_eos = true;
  return request;
}

TEST(EngineDrafts, SaveIterationsWhereATextRepeats) {
  Loaded loaded("llama3", {.kv_block_count = 40, .batch_tokens_max = 64, .logit_rows_max = 24});
  const EngineRequest request = easy_request(61);
  const DraftCase one{request, alone(loaded, request)};
  const EngineStatus status =
      expect_same(loaded, std::span(&one, 1), {.drafts = {.tokens_max = 9, .adaptive = false}});
  // The prompt gives the first token, every step ten more.
  EXPECT_EQ(status.counters.iterations, 7);
  EXPECT_EQ(status.counters.accepted_tokens, 54);
  EXPECT_EQ(status.counters.drafted_tokens, 54);
  EXPECT_EQ(status.counters.generated_tokens, 61);
}

TEST(EngineDrafts, TakeNoRowFromNeighboursAndNoForwardMore) {
  // Eight rows of logits: seven answers leave one row for drafts, eight none.
  Loaded loaded("llama3", {.kv_block_count = 80, .batch_tokens_max = 64, .logit_rows_max = 8});
  const EngineRequest request = easy_request(20);
  const DraftCase one{request, alone(loaded, request)};
  const std::vector<DraftCase> eight(8, one);
  const DraftOptions drafts{.tokens_max = 30, .adaptive = false};
  const EngineStatus full = expect_same(loaded, eight, {.drafts = drafts});
  const EngineStatus plain = expect_same(loaded, eight, {});
  EXPECT_LE(full.counters.iterations, plain.counters.iterations);
  EXPECT_LT(full.counters.drafted_tokens, 60) << "but for those ahead of the others";
}

TEST(EngineDrafts, AFailedRequestOrForwardTakesOnlyItsOwn) {
  Loaded loaded("llama3", {.kv_block_count = 80, .batch_tokens_max = 64, .logit_rows_max = 24});
  const EngineRequest request = easy_request(40);
  const Outcome expected = alone(loaded, request);
  EngineOptions options{.drafts = {.tokens_max = 5, .adaptive = false}};
  int rows = 0;
  options.faults.on_logits = [&rows](RequestId id, int32_t, std::span<float> logits) {
    // In the middle of a draft of the second request.
    if (id == 2 && ++rows == 10) logits[3] = std::numeric_limits<float>::quiet_NaN();
  };
  const auto engine = value_of(Engine::create(*loaded.model, loaded.tokenizer, options));
  std::vector<std::shared_ptr<KeepingSink>> sinks;
  for (int i = 0; i < 3; ++i) {
    sinks.push_back(sink_for(request));
    value_of(engine->submit(request, sinks.back()));
  }
  for (const auto& sink : sinks) ASSERT_TRUE(sink->wait());
  EXPECT_EQ(sinks[0]->outcome, expected);
  EXPECT_EQ(sinks[2]->outcome, expected);
  ASSERT_TRUE(sinks[1]->error);
  EXPECT_EQ(sinks[1]->outcome[0].tokens.size(), 9u) << "as many as came before the bad row";
  EXPECT_TRUE(engine->drain(20));
  expect_clean(*engine);
}

TEST(EngineDrafts, CancellingInsideADraftEndsTheAnswer) {
  Loaded loaded("llama3", {.kv_block_count = 80, .batch_tokens_max = 64, .logit_rows_max = 24});
  const EngineOptions options{.drafts = {.tokens_max = 5, .adaptive = false}};
  const auto engine = value_of(Engine::create(*loaded.model, loaded.tokenizer, options));
  const auto sink = std::make_shared<KeepingSink>();
  std::atomic<RequestId> id{1};  // the first of an engine
  sink->when_piece = [&](int count) {
    if (count == 9) engine->cancel(id.load());
  };
  EXPECT_EQ(value_of(engine->submit(easy_request(100), sink)), 1);
  ASSERT_TRUE(sink->wait());
  EXPECT_EQ(sink->outcome[0].finish, FinishReason::kCancelled);
  EXPECT_LT(sink->outcome[0].tokens.size(), 20u);
  EXPECT_TRUE(engine->drain(20));
  expect_clean(*engine);
}

TEST(EngineDrafts, ASequenceWithoutASpeculatorHasNoDrafts) {
  EngineDrafts drafts({.tokens_max = 4, .adaptive = false}, 2, 100, 16);
  const std::vector<int32_t> tokens(10, 5);
  std::vector<plan::RequestId> told;
  const auto decide = [&] {
    told.clear();
    drafts.decide([&](plan::RequestId id, std::span<const int32_t> draft, int32_t) {
      EXPECT_EQ(std::vector<int32_t>(draft.begin(), draft.end()), std::vector<int32_t>(4, 5));
      told.push_back(id);
    });
  };
  for (const plan::RequestId id : {1, 2, 3}) drafts.follow(id, {tokens, {}}, 50);
  decide();
  EXPECT_EQ(told, (std::vector<plan::RequestId>{1, 2}));
  drafts.forget(1);
  drafts.forget(7);
  for (const plan::RequestId id : {2, 3}) drafts.follow(id, {tokens, {}}, 50);
  decide();
  EXPECT_EQ(told, (std::vector<plan::RequestId>{2, 3}));
  // One token more comes than are drafted.
  drafts.follow(3, {tokens, {}}, 1);
  decide();
  EXPECT_TRUE(told.empty());
}

TEST(EngineDrafts, TakeTheBytesThatWerePlanned) {
  EXPECT_EQ(EngineDrafts::bytes_for({}, 64, 4096), 0);
  EXPECT_EQ(EngineDrafts::bytes_for({.tokens_max = 8}, 64, 4096),
            64 * (4096 * 2 * 4 + kDraftTokensMax * (3 * 4 + 2)));
}

}  // namespace
}  // namespace jige::serve
