// Answers that begin with reasoning: what is counted, and where a constraint holds.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "grammar/constraint_compiler.h"
#include "serve/answer.h"
#include "serve/serve_test_support.h"

namespace jige::serve {
namespace {

using testing::character_tokenizer;
using testing::ids_of;
using testing::value_of;
using text::ReasoningStart;

constexpr int32_t kLastId = 95;  // of the tokenizer's last token
constexpr int32_t kEndId = 2;

struct Reasoned {
  std::string text;
  int64_t reasoning = 0;
  FinishReason finish = FinishReason::kCancelled;  // where it has not ended
};

// Wishes for one token after the other; where one is forbidden, some other token comes.
Reasoned wish_for(const text::Tokenizer& tokenizer, AnswerOptions options,
                  const std::vector<int32_t>& wanted) {
  const std::vector<int32_t> prompt = {5};
  options.stop_ids = {kEndId};
  Answer answer(tokenizer, prompt, std::move(options));
  Reasoned out;
  for (const int32_t token : wanted) {
    if (answer.done()) break;
    std::vector<float> logits(96, 0.0f);
    logits[static_cast<size_t>(token)] = 4;
    out.text += value_of(answer.take(logits)).text;
  }
  if (answer.done()) out.finish = answer.finish();
  out.text += answer.end();
  out.reasoning = answer.reasoning_count();
  return out;
}

std::shared_ptr<grammar::Constraint> regex(const text::Tokenizer& tokenizer,
                                           const std::string& source) {
  grammar::ConstraintCompiler compiler(tokenizer);
  return value_of(compiler.compile({grammar::ConstraintSource::Kind::kRegex, source}));
}

std::vector<int32_t> operator+(std::vector<int32_t> ids, const std::vector<int32_t>& more) {
  ids.insert(ids.end(), more.begin(), more.end());
  return ids;
}

TEST(AnswerReasoning, IsCountedWithItsTags) {
  const text::Tokenizer tokenizer = character_tokenizer();
  const auto count = [&](const std::string& text, ReasoningStart start) {
    return wish_for(tokenizer, {.reasoning = start}, ids_of(tokenizer, text)).reasoning;
  };
  EXPECT_EQ(count("<think>ab</think>cde", ReasoningStart::kMayOpen), 17);
  EXPECT_EQ(count("<think>ab", ReasoningStart::kMayOpen), 9);
  EXPECT_EQ(count("ab</think>cde", ReasoningStart::kOpened), 10);
  EXPECT_EQ(count("ab", ReasoningStart::kOpened), 2);
  EXPECT_EQ(count("a<think>b</think>", ReasoningStart::kMayOpen), 0);
  EXPECT_EQ(count("<think>b</think>", ReasoningStart::kNone), 0);
  const std::string final_message = "<|channel|>final<|message|>";
  const std::string reasoned =
      "<|channel|>analysis<|message|>ab<|end|><|start|>assistant" + final_message;
  EXPECT_EQ(count(reasoned + "cd", ReasoningStart::kChannels), std::ssize(reasoned));
  EXPECT_EQ(count(final_message + "cd", ReasoningStart::kChannels), 0);
}

TEST(AnswerReasoning, AConstraintHoldsBehindIt) {
  const text::Tokenizer tokenizer = character_tokenizer();
  const Reasoned out = wish_for(
      tokenizer, {.constraint = regex(tokenizer, "[0-9]b"), .reasoning = ReasoningStart::kOpened},
      ids_of(tokenizer, "Hm, 5?</think>7b"));
  EXPECT_EQ(out.text, "Hm, 5?</think>7b");
  EXPECT_EQ(out.finish, FinishReason::kComplete);
  EXPECT_EQ(out.reasoning, 14);
  // What does not fit is forbidden from there on, end-of-text in the reasoning too.
  const Reasoned other = wish_for(
      tokenizer, {.constraint = regex(tokenizer, "[0-9]b"), .reasoning = ReasoningStart::kOpened},
      std::vector<int32_t>{kEndId} + ids_of(tokenizer, "</think>xx"));
  EXPECT_EQ(other.text, "<unk></think>0b");
  EXPECT_EQ(other.finish, FinishReason::kComplete);
}

TEST(AnswerReasoning, AConstrainedAnswerMayOpenItWithTheTokenOfTheTag) {
  const text::Tokenizer tokenizer = character_tokenizer(std::string(text::kReasoningOpen));
  const auto answer = [&](const std::vector<int32_t>& wanted, ReasoningStart start) {
    return wish_for(tokenizer, {.constraint = regex(tokenizer, "[0-9]b"), .reasoning = start},
                    wanted)
        .text;
  };
  const std::vector<int32_t> open = {kLastId};
  EXPECT_EQ(answer(open + ids_of(tokenizer, "x</think>yy"), ReasoningStart::kMayOpen),
            "<think>x</think>0b");
  EXPECT_EQ(answer(ids_of(tokenizer, "5") + open, ReasoningStart::kMayOpen), "5b")
      << "nowhere but at the start";
  EXPECT_EQ(answer(open + open, ReasoningStart::kNone), "0b");
}

TEST(AnswerReasoning, ATokenCannotEndItAndBringMore) {
  const text::Tokenizer tokenizer = character_tokenizer(">x");
  const auto wanted =
      ids_of(tokenizer, "a</think") + std::vector<int32_t>{kLastId} + ids_of(tokenizer, ">7b");
  const auto constraint = regex(tokenizer, "[0-9]b");
  const Reasoned out =
      wish_for(tokenizer, {.constraint = constraint, .reasoning = ReasoningStart::kOpened}, wanted);
  EXPECT_EQ(out.text.find(">x"), std::string::npos) << out.text;
  EXPECT_TRUE(wish_for(tokenizer, {.reasoning = ReasoningStart::kOpened}, wanted)
                  .text.starts_with("a</think>x"));
}

TEST(AnswerReasoning, WhatAConstraintSpellsAsTheTagIsReasoningToo) {
  const text::Tokenizer tokenizer = character_tokenizer();
  const Reasoned out = wish_for(
      tokenizer,
      {.constraint = regex(tokenizer, "<think>[0-9]b"), .reasoning = ReasoningStart::kMayOpen},
      ids_of(tokenizer, "<think>x</think><think>7b"));
  EXPECT_EQ(out.text, "<think>x</think><think>7b");
  EXPECT_EQ(out.finish, FinishReason::kComplete);
}

}  // namespace
}  // namespace jige::serve
