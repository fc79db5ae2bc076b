// A draft model changes no bit of any answer, is run for those that it guesses well, and not where
// that does not pay.
#include <algorithm>
#include <atomic>

#include "grammar/constraint_compiler.h"
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
using testing::fixture;
using testing::KeepingSink;
using testing::Loaded;
using testing::random_request;
using testing::sink_for;
using testing::value_of;

std::unique_ptr<DraftModel> draft_for(Loaded& large, const std::string& name,
                                      int64_t batch_tokens = 64, int64_t sequences = 8) {
  const auto plan = value_of(DraftModelPlan::create(
      fixture(name), {.ids_max = 96, .sequences = sequences, .batch_tokens_max = batch_tokens}));
  return value_of(DraftModel::load(plan, *large.model));
}

const model::InferenceOptions kSizes = {
    .kv_block_count = 80, .batch_tokens_max = 64, .logit_rows_max = 24};

// A prompt that repeats nothing, and a greedy answer to it.
EngineRequest greedy_request(int32_t first, int64_t tokens_max) {
  EngineRequest request{.tokens_max = tokens_max, .ignore_eos = true};
  for (int32_t i = 0; i < 20; ++i) request.prompt.push_back(3 + (first + i * 7) % 90);
  return request;
}

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

// Steps of sequences that are made up, without an engine: what comes next is `next`.
struct MadeUpSteps {
  MadeUpSteps(DraftModel* model, const DraftOptions& options, double step_seconds,
              int64_t sequences = 1)
      : drafts(options, sequences, 128, 24, model) {
    for (int i = 0; i < 8; ++i) drafts.add_step(1 + i % 3, step_seconds);
  }
  // One step of a sequence alone; its draft.
  std::vector<int32_t> step(plan::RequestId id, const std::vector<int32_t>& tokens,
                            int64_t left = 30) {
    std::vector<int32_t> draft;
    drafts.follow(id, {tokens, {}}, left);
    drafts.decide([&](plan::RequestId told, std::span<const int32_t> guesses) {
      EXPECT_EQ(told, id);
      draft.assign(guesses.begin(), guesses.end());
    });
    return draft;
  }
  EngineDrafts drafts;
};

// Sixty tokens that repeat no pair.
std::vector<int32_t> no_repeats(int32_t count) {
  std::vector<int32_t> tokens;
  for (int32_t i = 0; i < count; ++i) tokens.push_back(3 + i);
  return tokens;
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
    drafts.decide([](plan::RequestId, std::span<const int32_t>) {});
    EXPECT_EQ(draft->model().forward_count(), 0u);
    drafts.add_step(1, 10);
  }
  drafts.follow(1, {tokens, {}}, 30);
  drafts.decide([](plan::RequestId, std::span<const int32_t>) {});
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
  steps.drafts.decide([&](plan::RequestId id, std::span<const int32_t>) { told.push_back(id); });
  EXPECT_EQ(told, std::vector<plan::RequestId>{2});
  EXPECT_EQ(draft->missing(1, {much, {}}), 60 - 13) << "the other's rows are read, too";
  // Another text with the same beginning, and other steps with the same model.
  steps.drafts.begin_again(1, 5);
  EXPECT_EQ(draft->missing(1, {much, {}}), 55);
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
