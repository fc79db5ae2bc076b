// An answer ahead guesses what the answer takes, and follows what it may have and nothing else.
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "grammar/constraint_compiler.h"
#include "serve/answer.h"
#include "serve/serve_test_support.h"

namespace jige::serve {
namespace {

using grammar::ConstraintSource;
using testing::character_tokenizer;
using testing::ids_of;
using testing::value_of;

constexpr int32_t kIds = 96;

struct AheadRun {
  explicit AheadRun(uint64_t seed) : rng(derive_key(seed, "ahead")) {
    options.tokens_max = 14;
    options.stop_ids = {2};
    options.stop_strings = {"aab"};
    if (rng.below(2) == 0) options.constraint = drawn_constraint();
    if (rng.below(3) == 0) options.allowed = drawn_set();
    if (rng.below(3) == 0) options.forbidden_rows = {{id('a'), id('b')}, {id('c')}, {7, 8, 9}};
    if (rng.below(3) == 0) options.sampling.logit_bias = {{id('a'), -INFINITY}, {id('x'), 3}};
    if (rng.below(3) == 0) options.tokens_min = 5;
    if (rng.below(3) == 0) options.sampling.repetition_penalty = 1.7;
    if (rng.below(3) == 0) options.sampling.frequency_penalty = 0.9;
    if (options.constraint && rng.below(2) == 0) {
      options.reasoning =
          rng.below(2) == 0 ? text::ReasoningStart::kOpened : text::ReasoningStart::kMayOpen;
    }
  }

  int32_t id(char c) const { return c - '!' + 4; }
  std::shared_ptr<grammar::Constraint> drawn_constraint() {
    const std::vector<std::string> regexes = {"[a-c]+x?", "abcabc|abdxyz", "(ab|c){2,4}", ".*",
                                              "a[0-9]{3}bcd"};
    const std::string& regex = regexes[rng.below(regexes.size())];
    return value_of(compiler.compile({ConstraintSource::Kind::kRegex, regex}));
  }
  std::shared_ptr<const grammar::TokenBits> drawn_set() {
    auto bits = std::make_shared<grammar::TokenBits>(2, 0);
    for (uint64_t& word : *bits) word = rng.next_u64() | rng.next_u64();
    return bits;
  }
  std::vector<float> drawn_logits() {
    std::vector<float> logits;
    for (int32_t i = 0; i < kIds; ++i) logits.push_back(static_cast<float>(rng.uniform()));
    // What closes the reasoning, or ends the answer, comes now and then.
    for (const char c : {'<', '/', 't', 'h', 'i', 'n', 'k', '>'}) {
      if (rng.below(2) == 0) logits[static_cast<size_t>(id(c))] += 0.5f;
    }
    return logits;
  }

  Rng rng;
  text::Tokenizer tokenizer = character_tokenizer();
  grammar::ConstraintCompiler compiler{tokenizer};
  AnswerOptions options;
  const std::vector<int32_t> prompt = {5, 6, 7};
};

// Whether `token` may come behind these and the answer goes on then: by an answer that is given
// nothing else to choose.
bool goes_on_with(const AheadRun& run, std::span<const int32_t> before, int32_t token) {
  AnswerOptions options = run.options;
  options.stop_strings.clear();
  Answer answer(run.tokenizer, run.prompt, options);
  const auto wish = [&](int32_t id) {
    std::vector<float> logits(kIds, 0.0f);
    logits[static_cast<size_t>(id)] = 1e6;
    return answer.take(logits).has_value() && answer.last_drawn() == id;
  };
  for (const int32_t id : before) EXPECT_TRUE(wish(id));
  return wish(token) && !answer.done();
}

TEST(AnswerAhead, GuessesWhatTheAnswerTakes) {
  int guessed = 0;
  for (uint64_t seed = 0; seed < 60; ++seed) {
    AheadRun run(seed);
    run.options.stop_strings.clear();
    Answer answer(run.tokenizer, run.prompt, run.options);
    std::vector<std::vector<float>> rows;
    for (int i = 0; i < 20; ++i) rows.push_back(run.drawn_logits());
    std::vector<std::vector<int32_t>> guesses;
    for (size_t i = 0; !answer.done(); ++i) {
      Answer ahead = answer.ahead();
      guesses.emplace_back();
      for (size_t row = i; row < i + 4; ++row) {
        const auto guess = ahead.guess(rows[row]);
        if (!guess) break;
        guesses.back().push_back(*guess);
      }
      if (!answer.take(rows[i])) break;
    }
    // But for the last one, with which it ends.
    const std::vector<int32_t>& tokens = answer.tokens();
    for (size_t i = 0; i < guesses.size(); ++i) {
      for (size_t j = 0; j < guesses[i].size(); ++j) {
        ASSERT_LT(i + j, tokens.size()) << "seed " << seed;
        EXPECT_EQ(guesses[i][j], tokens[i + j]) << "seed " << seed << ", token " << i + j;
        ++guessed;
      }
      const bool goes_on = i + 1 < tokens.size();
      EXPECT_TRUE(!goes_on || !guesses[i].empty()) << "seed " << seed;
    }
  }
  EXPECT_GT(guessed, 1000);
}

TEST(AnswerAhead, FollowsWhatMayComeAndNothingElse) {
  int followed = 0;
  int refused = 0;
  for (uint64_t seed = 100; seed < 120; ++seed) {
    AheadRun run(seed);
    Answer answer(run.tokenizer, run.prompt, run.options);
    while (!answer.done()) {
      for (int32_t token = 0; token < kIds; token += 1 + static_cast<int32_t>(run.rng.below(5))) {
        const bool follows = answer.ahead().follow(token);
        EXPECT_EQ(follows, goes_on_with(run, answer.tokens(), token))
            << "seed " << seed << ", token " << token << " behind " << answer.tokens().size();
        ++(follows ? followed : refused);
      }
      if (!answer.take(run.drawn_logits())) break;
    }
  }
  EXPECT_GT(followed, 500);
  EXPECT_GT(refused, 500);
}

// A token without text in the middle of a tag is none of the tag.
TEST(AnswerAhead, SpecialTokensHaveNoText) {
  AheadRun run(1);
  run.options = {.stop_ids = {2}, .reasoning = text::ReasoningStart::kOpened};
  run.options.constraint =
      value_of(run.compiler.compile({ConstraintSource::Kind::kRegex, "[ab]+"}));
  std::vector<int32_t> tokens = ids_of(run.tokenizer, "</think");
  tokens.push_back(1);
  tokens.push_back(run.id('>'));
  EXPECT_TRUE(goes_on_with(run, tokens, run.id('a')));
  for (const char c : {'a', 'z'}) {
    Answer ahead = Answer(run.tokenizer, run.prompt, run.options).ahead();
    for (const int32_t token : tokens) EXPECT_TRUE(ahead.follow(token));
    EXPECT_EQ(ahead.follow(run.id(c)), c == 'a') << c;
  }
}

TEST(AnswerAhead, HasRulesWhereMoreThanTheLogitsSaysWhatComes) {
  const text::Tokenizer tokenizer = character_tokenizer();
  const auto has_rules = [&](AnswerOptions options) {
    return Answer(tokenizer, std::vector<int32_t>{5}, std::move(options)).has_rules();
  };
  EXPECT_FALSE(has_rules({}));
  AnswerOptions options;
  options.sampling = {.temperature = 1, .top_k = 4, .top_p = 0.5};
  options.stop_strings = {"a"};
  EXPECT_FALSE(has_rules(options));
  EXPECT_TRUE(has_rules({.tokens_min = 2, .stop_ids = {2}}));
  EXPECT_TRUE(has_rules({.forbidden_rows = {{1, 2}}}));
  EXPECT_TRUE(has_rules({.allowed = std::make_shared<grammar::TokenBits>(2, ~uint64_t{0})}));
  options.sampling.logit_bias = {{3, 1}};
  EXPECT_TRUE(has_rules(options));
  options.sampling = {.presence_penalty = 0.1};
  EXPECT_TRUE(has_rules(options));
}

// The tokens that are forced, one behind the other.
std::vector<int32_t> forced_of(const text::Tokenizer& tokenizer, const std::string& regex,
                               AnswerOptions options = {}) {
  grammar::ConstraintCompiler compiler(tokenizer);
  options.constraint = value_of(compiler.compile({ConstraintSource::Kind::kRegex, regex}));
  const std::vector<int32_t> prompt = {1};
  Answer ahead = Answer(tokenizer, prompt, options).ahead();
  std::vector<int32_t> all;
  while (const auto token = ahead.forced()) {
    if (!ahead.follow(token->token)) break;
    all.push_back(token->token);
  }
  return all;
}

TEST(AnswerAhead, WhatHasToComeIsForced) {
  const text::Tokenizer tokenizer = character_tokenizer();
  EXPECT_EQ(forced_of(tokenizer, "abc[de]f"), ids_of(tokenizer, "abc"));
  EXPECT_EQ(forced_of(tokenizer, "abcd"), ids_of(tokenizer, "abc")) << "it ends with the last";
  EXPECT_TRUE(forced_of(tokenizer, "(abc)?", {.stop_ids = {2}}).empty()) << "it may end";
  EXPECT_EQ(forced_of(tokenizer, "abc(de)*", {.stop_ids = {2}}), ids_of(tokenizer, "abc"));
  EXPECT_TRUE(forced_of(tokenizer, "abcd", {.reasoning = text::ReasoningStart::kOpened}).empty());
  // Of the two one is not among those that may be drawn.
  auto allowed = std::make_shared<grammar::TokenBits>(2, ~uint64_t{0});
  const auto e = static_cast<size_t>(ids_of(tokenizer, "e")[0]);
  (*allowed)[e / 64] &= ~(uint64_t{1} << (e % 64));
  EXPECT_EQ(forced_of(tokenizer, "abc[de]fg", {.allowed = allowed}), ids_of(tokenizer, "abcdf"));
}

TEST(AnswerAhead, OfTokensThatSpellTheSameTheLongestIsForced) {
  const auto tokenizer = value_of(text::Tokenizer::from_json(
      R"({"version":"1.0","added_tokens":[],"normalizer":null,"pre_tokenizer":null,
      "post_processor":null,"decoder":{"type":"ByteLevel","add_prefix_space":false,
      "trim_offsets":true,"use_regex":true},"model":{"type":"BPE","merges":[],"vocab":{
      "n":0,"a":1,"m":2,"e":3,"na":4,"nam":5,"me":6,"mx":7,"x":8,"am":9}}})",
      "a test"));
  EXPECT_EQ(forced_of(tokenizer, "name(a|x)"), (std::vector<int32_t>{5, 3}));
  EXPECT_EQ(forced_of(tokenizer, "na(me|mx)a"), (std::vector<int32_t>{5})) << "behind nam, e or x";
  EXPECT_TRUE(forced_of(tokenizer, "(name|am)x").empty());
  // Which of them comes is not certain, but where there is only one.
  grammar::ConstraintCompiler compiler(tokenizer);
  for (const auto& [regex, only] : {std::pair{"name!?", false}, {"eaea", true}}) {
    const auto constraint = value_of(compiler.compile({ConstraintSource::Kind::kRegex, regex}));
    const std::vector<int32_t> prompt = {1};
    Answer ahead = Answer(tokenizer, prompt, {.constraint = constraint}).ahead();
    EXPECT_EQ(ahead.forced().value().only, only) << regex;
  }
}

}  // namespace
}  // namespace jige::serve
