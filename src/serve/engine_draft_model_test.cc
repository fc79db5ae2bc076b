// A draft model changes no bit of any answer, is run for those that it guesses well, and not where
// that does not pay.
#include <algorithm>
#include <thread>

#include "grammar/constraint_compiler.h"
#include "serve/draft_test_support.h"

namespace jige::serve {
namespace {

using plan::Admission;
using plan::ServePolicy;
using testing::alone;
using testing::cases_of;
using testing::ChoiceOutcome;
using testing::draft_for;
using testing::DraftCase;
using testing::expect_clean;
using testing::expect_same;
using testing::greedy_request;
using testing::KeepingSink;
using testing::kSizes;
using testing::Loaded;
using testing::MadeUpSteps;
using testing::no_repeats;
using testing::sink_for;
using testing::value_of;

TEST(EngineDraftModel, ChangesNoBit) {
  int64_t accepted = 0;
  int64_t refused = 0;
  Loaded loaded("llama3", kSizes);
  const std::vector<DraftCase> cases = cases_of(loaded, 31, 12);
  for (const char* name : {"llama3", "gpt2"}) {
    for (const int64_t batch_tokens : {9, 64}) {
      const auto draft = draft_for(loaded, name, batch_tokens);
      for (const DraftOptions& drafts : {DraftOptions{.tokens_max = 3, .adaptive = false},
                                         DraftOptions{.tokens_max = 8, .adaptive = true}}) {
        for (const ServePolicy policy : {ServePolicy::kChunked, ServePolicy::kStatic}) {
          const auto status = expect_same(loaded, cases,
                                          {.policy = policy,
                                           .batch_requests_max = 7,
                                           .drafts = drafts,
                                           .draft_model = draft.get()});
          accepted += status.counters.accepted_tokens;
          refused += status.counters.drafted_tokens - status.counters.accepted_tokens;
          EXPECT_EQ(draft->free_block_count(), draft->model().sizes().kv_block_count)
              << "blocks leaked";
        }
      }
    }
  }
  EXPECT_GT(accepted, 100);
  EXPECT_GT(refused, 100);
}

TEST(EngineDraftModel, ChangesNoBitBesidePreemptionAndKnownPrefixes) {
  Loaded loaded("qwen2", {.kv_block_count = 18, .batch_tokens_max = 64, .logit_rows_max = 24});
  const std::vector<DraftCase> cases = cases_of(loaded, 11, 16);
  const auto draft = draft_for(loaded, "qwen2");
  const EngineStatus status = expect_same(loaded, cases,
                                          {.admission = Admission::kOptimistic,
                                           .drafts = {.tokens_max = 4, .adaptive = false},
                                           .draft_model = draft.get()});
  EXPECT_GT(status.counters.preemptions, 0) << "the pool is too large for this test";
  EXPECT_GT(status.counters.prefix_hit_tokens, 0);
  EXPECT_GT(status.counters.draft_model_known_tokens, 0);
  EXPECT_GT(draft->pool().eviction_count(), 0);
  EXPECT_GT(status.counters.accepted_tokens, 0);
}

TEST(EngineDraftModel, ChangesNoBitOfConstrainedAnswers) {
  Loaded loaded("llama3", kSizes);
  loaded.tokenizer = testing::character_tokenizer("}");
  grammar::ConstraintCompiler compiler(loaded.tokenizer);
  const auto draft = draft_for(loaded, "llama3");
  std::vector<DraftCase> cases;
  for (int32_t i = 0; i < 6; ++i) {
    EngineRequest request = greedy_request(i, 30);
    request.sampling.temperature = i % 2 == 0 ? 0 : 1;
    request.seed = static_cast<uint64_t>(i);
    request.ignore_eos = false;
    request.constraint =
        value_of(compiler.compile({grammar::ConstraintSource::Kind::kRegex, "[a-c]{5,25}!"}));
    cases.push_back({request, alone(loaded, request)});
  }
  expect_same(loaded, cases,
              {.drafts = {.tokens_max = 4, .adaptive = false}, .draft_model = draft.get()});
}

TEST(EngineDraftModel, TheSameModelGuessesAllOfAGreedyAnswer) {
  Loaded loaded("llama3", kSizes);
  const auto draft = draft_for(loaded, "llama3");
  std::vector<DraftCase> cases;
  for (int32_t i = 0; i < 4; ++i) {
    const EngineRequest request = greedy_request(i * 13, 41);
    cases.push_back({request, alone(loaded, request)});
  }
  const auto status = expect_same(
      loaded, cases, {.drafts = {.tokens_max = 4, .adaptive = false}, .draft_model = draft.get()});
  // But for copies of the text.
  EXPECT_GT(status.counters.accepted_tokens, 0.8 * status.counters.drafted_tokens);
  EXPECT_LT(status.counters.iterations, 20) << "of about five tokens each, where it would be 41";
  const EngineStatus text = expect_same(loaded, cases, {.drafts = {.tokens_max = 4}});
  EXPECT_GT(status.counters.accepted_tokens, text.counters.accepted_tokens);
}

TEST(EngineDraftModel, AnswersGoOnWithoutAModelThatFails) {
  Loaded loaded("llama3", kSizes);
  const auto draft = draft_for(loaded, "llama3");
  std::vector<DraftCase> cases;
  for (int32_t i = 0; i < 3; ++i) {
    const EngineRequest request = greedy_request(i * 13, 41);
    cases.push_back({request, alone(loaded, request)});
  }
  for (const int failing : {1, 2, 9}) {
    int forwards = 0;
    draft->set_fault([&forwards, failing]() -> Status {
      if (++forwards == failing) return fail(Code::kExhausted, "no memory");
      return {};
    });
    const auto status =
        expect_same(loaded, cases,
                    {.drafts = {.tokens_max = 4, .adaptive = false}, .draft_model = draft.get()});
    EXPECT_EQ(forwards, failing) << "it is not run again";
    EXPECT_EQ(status.counters.requests_failed, 0);
  }
}

TEST(EngineDraftModel, ACancelledRequestGivesItsPlaceBack) {
  Loaded loaded("llama3", kSizes);
  const auto draft = draft_for(loaded, "llama3");
  const auto engine = value_of(
      Engine::create(*loaded.model, loaded.tokenizer,
                     {.drafts = {.tokens_max = 4, .adaptive = false}, .draft_model = draft.get()}));
  const auto sink = std::make_shared<KeepingSink>();
  sink->when_piece = [&](int count) {
    if (count == 9) engine->cancel(1);
  };
  EXPECT_EQ(value_of(engine->submit(greedy_request(0, 100), sink)), 1);
  ASSERT_TRUE(sink->wait());
  EXPECT_EQ(sink->outcome[0].finish, FinishReason::kCancelled);
  EXPECT_TRUE(engine->drain(20));
  expect_clean(*engine);
  EXPECT_EQ(draft->free_block_count(), draft->model().sizes().kv_block_count);
}

// One answer; how much the draft model has read for it, and known.
DraftModel::Counts counts_of(Engine& engine, const EngineRequest& request,
                             std::vector<int32_t>* answer = nullptr) {
  const EngineCounters before = engine.status().counters;
  const auto sink = sink_for(request);
  value_of(engine.submit(request, sink));
  EXPECT_TRUE(sink->wait());
  EXPECT_FALSE(sink->error);
  if (answer) *answer = sink->outcome[0].tokens;
  // What it did is published behind the end of the answer.
  while (engine.status().running_sequences > 0) std::this_thread::yield();
  const EngineCounters after = engine.status().counters;
  return {after.draft_model_read_tokens - before.draft_model_read_tokens,
          after.draft_model_known_tokens - before.draft_model_known_tokens};
}

TEST(EngineDraftModel, TheNextTurnReadsOnlyWhatIsNew) {
  Loaded loaded("llama3", kSizes);
  const auto draft = draft_for(loaded, "llama3");
  const auto engine = value_of(
      Engine::create(*loaded.model, loaded.tokenizer,
                     {.drafts = {.tokens_max = 4, .adaptive = false}, .draft_model = draft.get()}));
  EngineRequest request = greedy_request(0, 40);
  std::vector<int32_t> answer;
  const DraftModel::Counts first = counts_of(*engine, request, &answer);
  EXPECT_GE(first.read_tokens, 20);
  EXPECT_EQ(first.known_tokens, 0);
  request.prompt.insert(request.prompt.end(), answer.begin(), answer.end());
  request.prompt.insert(request.prompt.end(), {70, 71, 72});
  request.tokens_max = 10;
  const DraftModel::Counts second = counts_of(*engine, request);
  EXPECT_EQ(second.known_tokens, 48) << "three blocks of 20 + 40 tokens";
  EXPECT_LE(second.read_tokens, 63 + 10 - 48);
  request.cache_salt = 5;
  const DraftModel::Counts other = counts_of(*engine, request);
  EXPECT_EQ(other.known_tokens, 0) << "of somebody else";
  EXPECT_GE(other.read_tokens, 63);
}

TEST(EngineDraftModel, ChoicesReadTheirPromptOnce) {
  Loaded loaded("llama3", kSizes);
  const auto draft = draft_for(loaded, "llama3");
  const auto engine = value_of(
      Engine::create(*loaded.model, loaded.tokenizer,
                     {.drafts = {.tokens_max = 4, .adaptive = false}, .draft_model = draft.get()}));
  EngineRequest request = greedy_request(0, 12);
  for (int32_t i = 0; i < 30; ++i) request.prompt.push_back(3 + (i * i) % 90);
  request.choice_count = 3;
  request.sampling.temperature = 1;
  const DraftModel::Counts counts = counts_of(*engine, request);
  EXPECT_EQ(counts.known_tokens, 2 * 48) << "of the prompt's 50";
  EXPECT_LE(counts.read_tokens, 50 + 2 * 2 + 3 * 12);
}

TEST(EngineDraftModel, ChangesNoBitOfAnswersBesideThoseThatAreCancelled) {
  Loaded loaded("qwen2", {.kv_block_count = 24, .batch_tokens_max = 64, .logit_rows_max = 24});
  const std::vector<DraftCase> cases = cases_of(loaded, 19, 24);
  const auto draft = draft_for(loaded, "qwen2", /*batch_tokens=*/20);
  const auto engine = value_of(Engine::create(*loaded.model, loaded.tokenizer,
                                              {.admission = Admission::kOptimistic,
                                               .drafts = {.tokens_max = 4, .adaptive = false},
                                               .draft_model = draft.get()}));
  std::vector<std::shared_ptr<KeepingSink>> sinks;
  RequestId next = 1;
  for (size_t i = 0; i < cases.size(); ++i) {
    sinks.push_back(sink_for(cases[i].request));
    if (i % 3 == 0) {
      sinks.back()->when_piece = [&engine, id = next, last = 1 + static_cast<int>(i % 5)](int n) {
        if (n == last) engine->cancel(id);
      };
    }
    EXPECT_EQ(value_of(engine->submit(cases[i].request, sinks.back())), next);
    next += cases[i].request.choice_count;
  }
  for (size_t i = 0; i < cases.size(); ++i) {
    ASSERT_TRUE(sinks[i]->wait()) << "request " << i;
    for (size_t choice = 0; choice < cases[i].expected.size(); ++choice) {
      const ChoiceOutcome& got = sinks[i]->outcome[choice];
      const ChoiceOutcome& expected = cases[i].expected[choice];
      if (got.finish == FinishReason::kCancelled) {
        EXPECT_TRUE(std::ranges::equal(
            got.tokens,
            std::span(expected.tokens).first(std::min(got.tokens.size(), expected.tokens.size()))));
      } else {
        EXPECT_EQ(got, expected) << "request " << i;
      }
    }
  }
  EXPECT_TRUE(engine->drain(20));
  expect_clean(*engine);
  EXPECT_EQ(draft->pool().live_count(), 0) << "blocks leaked";
  EXPECT_EQ(draft->free_block_count(), 24);
  EXPECT_GT(engine->status().counters.draft_model_known_tokens, 0);
}

TEST(EngineDrafts, OfTwoThatBeginAlikeOneReadsAndTheOtherWaits) {
  Loaded loaded("llama3", kSizes);
  const auto draft = draft_for(loaded, "llama3");
  MadeUpSteps steps(draft.get(), {.tokens_max = 4, .adaptive = false}, 1, /*sequences=*/2);
  std::vector<int32_t> one = no_repeats(40);
  std::vector<int32_t> two = one;
  one.push_back(80);
  two.push_back(81);
  std::vector<plan::RequestId> told;
  const auto step = [&] {
    told.clear();
    steps.drafts.follow(1, {one, {}}, 30);
    steps.drafts.follow(2, {two, {}}, 30);
    steps.drafts.decide(
        [&](plan::RequestId id, std::span<const int32_t>, int32_t) { told.push_back(id); });
  };
  step();
  EXPECT_EQ(told, std::vector<plan::RequestId>{1});
  EXPECT_EQ(draft->counts().read_tokens, 41);
  one.push_back(85);
  two.push_back(86);
  step();
  EXPECT_EQ(told, (std::vector<plan::RequestId>{1, 2}));
  EXPECT_EQ(draft->counts().known_tokens, 32);
  EXPECT_EQ(draft->counts().read_tokens, 41 + 1 + 42 - 32);
}

TEST(EngineDrafts, AModelThatGuessesBadlyIsNotRunAndTriedAgainNowAndThen) {
  Loaded loaded("llama3", kSizes);
  const auto draft = draft_for(loaded, "gpt2");
  MadeUpSteps steps(draft.get(), {.tokens_max = 4}, /*step_seconds=*/10);
  const auto forwards_of = [&](plan::RequestId id) {
    const uint64_t before = draft->model().forward_count();
    for (int32_t count = 20; count < 60; ++count) steps.step(id, no_repeats(count));
    EXPECT_EQ(draft->free_block_count(), draft->model().sizes().kv_block_count)
        << "others may have its place";
    steps.drafts.forget(id);
    return draft->model().forward_count() - before;
  };
  const uint64_t first = forwards_of(1);
  EXPECT_GT(first, 2u);
  EXPECT_LT(first, 60u) << "it was given up in the middle of the text";
  uint64_t forwards = 0;
  int tried = 0;
  for (plan::RequestId id = 2; id < 100; ++id) {
    const uint64_t more = forwards_of(id);
    forwards += more;
    tried += more > 0 ? 1 : 0;
  }
  EXPECT_GE(tried, 3) << "the 33rd, the 65th and the 97th";
  EXPECT_LT(tried, 20) << "and some until it was known";
  EXPECT_LT(forwards, 200u) << "of 98 * 40 steps";
}

TEST(EngineDrafts, AModelIsNotRunWhereItCannotPay) {
  Loaded loaded("llama3", kSizes);
  const auto draft = draft_for(loaded, "llama3");
  // Steps of the large model are much quicker than those of the draft model.
  MadeUpSteps steps(draft.get(), {.tokens_max = 4}, /*step_seconds=*/1e-7);
  for (int32_t count = 20; count < 60; ++count) steps.step(1, no_repeats(count));
  EXPECT_EQ(draft->model().forward_count(), 4u) << "to be measured";
}

TEST(EngineDrafts, AModelIsNotRunBeforeItIsKnownWhatAStepCosts) {
  Loaded loaded("llama3", kSizes);
  const auto draft = draft_for(loaded, "llama3");
  EngineDrafts drafts({.tokens_max = 4}, 1, 128, 24, draft.get());
  const std::vector<int32_t> tokens = no_repeats(20);
  for (int step = 0; step < 4; ++step) {
    drafts.follow(1, {tokens, {}}, 30);
    drafts.decide([](plan::RequestId, std::span<const int32_t>, int32_t) {});
    EXPECT_EQ(draft->model().forward_count(), 0u);
    drafts.add_step(1, 10);
  }
  drafts.follow(1, {tokens, {}}, 30);
  drafts.decide([](plan::RequestId, std::span<const int32_t>, int32_t) {});
  EXPECT_EQ(draft->model().forward_count(), 1u);
}

TEST(EngineDrafts, AModelReadsInPiecesBeforeItGuesses) {
  Loaded loaded("llama3", kSizes);
  const auto draft = draft_for(loaded, "llama3", /*batch_tokens=*/16);
  MadeUpSteps steps(draft.get(), {.tokens_max = 4, .adaptive = false}, 1);
  std::vector<int32_t> tokens = no_repeats(40);
  EXPECT_TRUE(steps.step(1, tokens).empty());
  tokens.push_back(60);
  EXPECT_TRUE(steps.step(1, tokens).empty());
  tokens.push_back(70);
  EXPECT_EQ(steps.step(1, tokens).size(), 4u);
  EXPECT_EQ(draft->model().forward_count(), 6u) << "three to read, and three more guesses";
  EXPECT_GT(steps.drafts.model_seconds(), 0);
  // A copy of the text is free.
  for (int i = 0; i < 6; ++i) tokens.push_back(5);
  EXPECT_EQ(steps.step(1, tokens), std::vector<int32_t>(4, 5));
  EXPECT_EQ(draft->model().forward_count(), 6u);
  EXPECT_EQ(steps.drafts.model_seconds(), 0);
}

TEST(EngineDrafts, AModelReadsFirstWhereLeastIsMissing) {
  Loaded loaded("llama3", kSizes);
  const auto draft = draft_for(loaded, "llama3", /*batch_tokens=*/16);
  const DraftOptions options{.tokens_max = 4, .adaptive = false};
  MadeUpSteps steps(draft.get(), options, 1, /*sequences=*/2);
  const std::vector<int32_t> much = no_repeats(60);
  const std::vector<int32_t> little = {70, 71, 72};
  steps.drafts.follow(1, {much, {}}, 30);
  steps.drafts.follow(2, {little, {}}, 30);
  std::vector<plan::RequestId> told;
  steps.drafts.decide(
      [&](plan::RequestId id, std::span<const int32_t>, int32_t) { told.push_back(id); });
  EXPECT_EQ(told, std::vector<plan::RequestId>{2});
  EXPECT_EQ(draft->missing(1, {much, {}}), 60 - 13) << "the other's rows are read, too";
  // Other steps with the same model.
  const MadeUpSteps others(draft.get(), options, 1);
  EXPECT_EQ(draft->free_block_count(), draft->model().sizes().kv_block_count);
}

TEST(EngineDrafts, WhoHasNoPlaceInTheModelHasCopiesOfTheText) {
  Loaded loaded("llama3", {.kv_block_count = 8});
  const auto draft = draft_for(loaded, "llama3");
  MadeUpSteps steps(draft.get(), {.tokens_max = 4, .adaptive = false}, 1, /*sequences=*/3);
  EXPECT_EQ(steps.step(1, no_repeats(40), 60).size(), 4u) << "seven blocks";
  std::vector<int32_t> repeats = {9, 8, 9, 8};
  EXPECT_EQ(steps.step(2, repeats, 60), (std::vector<int32_t>{9, 8, 9, 8}));
  EXPECT_TRUE(steps.step(3, no_repeats(4), 60).empty());
  steps.drafts.forget(1);
  EXPECT_EQ(steps.step(3, no_repeats(5), 60).size(), 4u) << "as soon as there is one";
}

TEST(EngineDrafts, WhoIsLongerThanTheContextOfTheModelHasNoPlaceInIt) {
  Loaded loaded("llama3", kSizes);
  const auto draft = draft_for(loaded, "gpt2");  // 64
  MadeUpSteps steps(draft.get(), {.tokens_max = 4, .adaptive = false}, 1);
  const int64_t blocks = draft->free_block_count();
  EXPECT_EQ(steps.step(1, no_repeats(61)).size(), 4u);
  EXPECT_EQ(steps.step(1, no_repeats(63)).size(), 2u);
  EXPECT_EQ(steps.step(1, no_repeats(64)).size(), 1u);
  EXPECT_LT(draft->free_block_count(), blocks);
  EXPECT_TRUE(steps.step(1, no_repeats(65)).empty());
  EXPECT_EQ(draft->free_block_count(), blocks);
}

TEST(GeneratorDraftModel, ChangesNoBitFromTurnToTurn) {
  Loaded loaded("llama3", {.batch_tokens_max = 64, .logit_rows_max = 9});
  const auto draft = draft_for(loaded, "llama3");
  Generator plain(*loaded.model, loaded.tokenizer);
  Generator drafting(*loaded.model, loaded.tokenizer, model::kNoAdapter, draft.get());
  int64_t accepted = 0;
  std::vector<int32_t> prompt = no_repeats(20);
  for (int turn = 0; turn < 4; ++turn) {
    for (const DraftOptions& drafts : {DraftOptions{.tokens_max = 4, .adaptive = false},
                                       DraftOptions{}, DraftOptions{.tokens_max = 7}}) {
      GenerateOptions options{.seed = 5, .tokens_max = 17};
      options.sampling.temperature = turn % 2 == 0 ? 0 : 0.3;
      const auto expected = value_of(plain.generate(prompt, options));
      options.drafts = drafts;
      const auto answer = value_of(drafting.generate(prompt, options));
      EXPECT_EQ(answer.tokens, expected.tokens) << turn;
      EXPECT_EQ(answer.text, expected.text) << turn;
      accepted += answer.stats.accepted_tokens;
      prompt.resize(prompt.size() - 3);
      prompt.insert(prompt.end(), answer.tokens.begin(), answer.tokens.begin() + 6);
    }
  }
  EXPECT_GT(accepted, 30);
}

}  // namespace
}  // namespace jige::serve
