// Guesses obey what an answer must obey: none is made that it may not have, what its constraint
// forces is guessed without any model, and no bit of it changes.
#include <cmath>
#include <nlohmann/json.hpp>

#include "grammar/constraint_compiler.h"
#include "serve/draft_test_support.h"

namespace jige::serve {
namespace {

using grammar::ConstraintSource;
using testing::alone;
using testing::draft_for;
using testing::DraftCase;
using testing::expect_same;
using testing::greedy_request;
using testing::ids_of;
using testing::kSizes;
using testing::Loaded;
using testing::MadeUpSteps;
using testing::value_of;

class EngineDraftRules : public ::testing::Test {
 protected:
  EngineDraftRules() : loaded_("llama3", kSizes) {
    loaded_.tokenizer = testing::character_tokenizer("}");
    compiler_ = std::make_unique<grammar::ConstraintCompiler>(loaded_.tokenizer);
  }
  std::shared_ptr<grammar::Constraint> regex(const std::string& source) {
    return value_of(compiler_->compile({ConstraintSource::Kind::kRegex, source}));
  }
  std::shared_ptr<grammar::Constraint> choices(const std::vector<std::string>& texts) {
    return value_of(compiler_->compile({ConstraintSource::Kind::kChoices, texts}));
  }
  int32_t id(const std::string& character) { return ids_of(loaded_.tokenizer, character)[0]; }
  // Greedy ones, each with rules of its own.
  std::vector<DraftCase> cases() {
    std::vector<DraftCase> all;
    for (int32_t i = 0; i < 12; ++i) {
      EngineRequest request = greedy_request(i * 7, 30);
      if (i % 4 == 0) request.constraint = regex("[a-e]{5,25}!([f-k]{3})*");
      if (i % 4 == 1) request.sampling.logit_bias = {{id("a"), 8}, {id("b"), -8}, {id("c"), 7}};
      if (i % 4 == 2) request.sampling.frequency_penalty = 3;
      if (i % 4 == 3) {
        request.constraint = regex("([a-d][0-9]x){9}");
        request.sampling.repetition_penalty = 1.5;
        request.sampling.logit_bias = {{id("7"), 2}};
      }
      all.push_back({request, alone(loaded_, request)});
    }
    return all;
  }

  Loaded loaded_;
  std::unique_ptr<grammar::ConstraintCompiler> compiler_;
};

// As its own draft model a greedy model is right wherever it obeys the same rules.
TEST_F(EngineDraftRules, TheSameModelGuessesRightByTheSameRules) {
  const auto draft = draft_for(loaded_, "llama3");
  const std::vector<DraftCase> all = cases();
  int64_t drafted = 0;
  int64_t accepted = 0;
  for (const DraftCase& one : all) {
    const auto status =
        expect_same(loaded_, std::span(&one, 1),
                    {.drafts = {.tokens_max = 4, .adaptive = false}, .draft_model = draft.get()});
    EXPECT_GT(status.counters.accepted_tokens, 15);
    drafted += status.counters.drafted_tokens;
    accepted += status.counters.accepted_tokens;
  }
  // But for copies of the text.
  EXPECT_GT(accepted, 0.8 * static_cast<double>(drafted));
  expect_same(loaded_, all,
              {.drafts = {.tokens_max = 4, .adaptive = false}, .draft_model = draft.get()});
  expect_same(loaded_, all, {.drafts = {.tokens_max = 7}, .draft_model = draft.get()});
}

TEST_F(EngineDraftRules, NothingForbiddenIsGuessed) {
  const auto draft = draft_for(loaded_, "gpt2");
  const std::vector<int32_t> prompt = testing::no_repeats(20);
  AnswerOptions constrained{.stop_ids = {2}, .constraint = regex("[ab]+!+")};
  AnswerOptions allowed;
  allowed.allowed = std::make_shared<grammar::TokenBits>(1, 0x5555'5555'5555'5550);
  AnswerOptions forbidden;
  for (int32_t token = 0; token < 96; token += 3) forbidden.forbidden_rows.push_back({token});
  AnswerOptions biased;
  for (int32_t token = 0; token < 90; ++token) {
    biased.sampling.logit_bias.push_back({token, -INFINITY});
  }
  int64_t guessed = 0;
  for (const AnswerOptions& options : {constrained, allowed, forbidden, biased}) {
    const auto may_come = [&](const std::vector<int32_t>& tokens) {
      Answer answer(loaded_.tokenizer, prompt, options);
      for (const int32_t token : tokens) {
        std::vector<float> logits(96, 0.0f);
        logits[static_cast<size_t>(token)] = 1e6;
        if (!answer.take(logits) || answer.last_drawn() != token) return false;
      }
      return true;
    };
    MadeUpSteps steps(draft.get(), {.tokens_max = 6, .adaptive = false}, 1);
    Answer answer(loaded_.tokenizer, prompt, options);
    std::vector<int32_t> tokens = prompt;
    Rng rng(derive_key(3, "rules"));
    for (int step = 0; step < 12; ++step) {
      std::vector<float> logits;
      for (int i = 0; i < 96; ++i) logits.push_back(static_cast<float>(rng.uniform()));
      value_of(answer.take(logits));
      if (answer.done()) break;
      tokens.push_back(answer.last_drawn());
      std::vector<int32_t> all = answer.tokens();
      for (const int32_t guess : steps.step(1, tokens, 30, &answer)) {
        all.push_back(guess);
        ++guessed;
        ASSERT_TRUE(may_come(all)) << "token " << guess << " in step " << step;
      }
    }
  }
  EXPECT_GT(guessed, 100);
}

TEST_F(EngineDraftRules, ACopyOfTheTextEndsWhereItIsForbidden) {
  MadeUpSteps steps(nullptr, {.tokens_max = 6, .adaptive = false}, 1);
  const std::vector<int32_t> prompt = ids_of(loaded_.tokenizer, "abcdefghiabc");
  for (const auto& [source, copied] : {std::pair<std::string, std::string>{"[a-i]+", "defghi"},
                                       {"[dx][ex][xy]z+", "de"},
                                       {"[wx]z+", ""}}) {
    const Answer answer(loaded_.tokenizer, prompt, {.constraint = regex(source)});
    EXPECT_EQ(steps.step(1, prompt, 30, &answer), ids_of(loaded_.tokenizer, copied)) << source;
    steps.drafts.forget(1);
  }
}

TEST_F(EngineDraftRules, WhatIsForcedIsGuessedWithoutAModel) {
  std::vector<DraftCase> all;
  for (int32_t i = 0; i < 6; ++i) {
    EngineRequest request = greedy_request(i * 5, 60);
    request.sampling.temperature = i % 2;
    request.seed = static_cast<uint64_t>(i);
    request.constraint =
        i < 3 ? regex("(the quick|some lazy) [ab] dog jumps!") : choices({"abcdefgh", "xyz12345"});
    all.push_back({request, alone(loaded_, request)});
  }
  for (const DraftOptions& drafts :
       {DraftOptions{.tokens_max = 8, .adaptive = false}, DraftOptions{.tokens_max = 7}}) {
    for (const DraftCase& one : all) {
      const auto status = expect_same(loaded_, std::span(&one, 1), {.drafts = drafts});
      const EngineCounters& counters = status.counters;
      EXPECT_EQ(counters.accepted_tokens, counters.drafted_tokens);
      EXPECT_GT(counters.accepted_tokens, 0);
      EXPECT_TRUE(drafts.adaptive || counters.iterations <= 2 + counters.generated_tokens / 4);
    }
    expect_same(loaded_, all, {.drafts = drafts});
  }
}

TEST_F(EngineDraftRules, WhatIsForcedGoesBeforeAModelWhereItPromisesMore) {
  const auto draft = draft_for(loaded_, "llama3");
  const std::vector<int32_t> prompt = testing::no_repeats(20);
  std::vector<int32_t> tokens = prompt;
  for (const auto& [source, by_model] :
       {std::pair<std::string, bool>{"abcdefghijkl", false}, {"a[cd]{30}", true}}) {
    MadeUpSteps steps(draft.get(), {.tokens_max = 6, .adaptive = false}, 1);
    const Answer answer(loaded_.tokenizer, prompt, {.constraint = regex(source)});
    const std::vector<int32_t> guesses = steps.step(1, tokens, 30, &answer);
    EXPECT_EQ(guesses.size(), 6u) << source;
    EXPECT_EQ(guesses[0], id("a"));
    EXPECT_EQ(draft->counts().read_tokens > 0, by_model) << source;
  }
}

}  // namespace
}  // namespace jige::serve
