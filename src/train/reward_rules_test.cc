// What rules give for texts, and which known answers they refuse.

#include "train/reward_rules.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace jige::train {
namespace {

using testing::HasSubstr;

TEST(RewardRules, HaveNamesThatReadBack) {
  for (const std::string& name : reward_rule_names()) {
    EXPECT_EQ(reward_rule_name(read_reward_rule(name)), name);
  }
}

TEST(RewardRules, ReadTheLastNumberOfAText) {
  const std::pair<const char*, const char*> cases[] = {
      {"It is 42.", "42"},
      {"3 + 4 = 7", "7"},
      {"#### 1,234", "1234"},
      {"-5", "-5"},
      {"9-5", "5"},
      {"x - -0.50", "-0.5"},
      {"$1,234,567.80!", "1234567.8"},
      {"007", "7"},
      {"-0.0", "0"},
      {".5 of it", "0.5"},
      {"1,2", "2"},
      {"1,2345", "2345"},
      {"3.14.", "3.14"},
      {"12345678901234567890123", "12345678901234567890123"},
      {"a4", "4"},
      {"1.", "1"},
  };
  for (const auto& [text, number] : cases) EXPECT_EQ(last_number(text), number) << text;
  EXPECT_EQ(last_number("none."), std::nullopt);
  EXPECT_EQ(last_number(""), std::nullopt);
  EXPECT_EQ(last_number("-,."), std::nullopt);
}

TEST(RewardRules, GiveOneForTheKnownAnswerAndElseNothing) {
  const struct {
    RewardRule rule;
    const char *text, *answer;
    double reward;
  } cases[] = {
      {RewardRule::kExact, " Paris\n", "Paris", 1},
      {RewardRule::kExact, "Paris.", "Paris", 0},
      {RewardRule::kExact, "paris", "Paris", 0},
      {RewardRule::kContains, "It is Paris.", " Paris", 1},
      {RewardRule::kContains, "It is Rome.", "Paris", 0},
      {RewardRule::kNumber, "3 + 4 = 7.0", "7", 1},
      {RewardRule::kNumber, "7 or 8", "7", 0},
      {RewardRule::kNumber, "seven", "7", 0},
      {RewardRule::kNumber, "It has 1,000", "= 1000", 1},
      {RewardRule::kRegex, "the answer: 12", "answer: *1[23]$", 1},
      {RewardRule::kRegex, "the answer: 14", "answer: *1[23]$", 0},
      {RewardRule::kRegex, "\xC3\x84pfel", "^\\p{Lu}", 1},
  };
  for (const auto& one : cases) {
    EXPECT_TRUE(check_known_answer(one.rule, one.answer, "x"));
    EXPECT_EQ(rule_reward(one.rule, one.text, one.answer), one.reward) << one.text;
  }
}

TEST(RewardRules, GiveNothingWherePatternsTakeTooLong) {
  const std::string pattern = "^(a+)+$";
  EXPECT_TRUE(check_known_answer(RewardRule::kRegex, pattern, "x"));
  EXPECT_EQ(rule_reward(RewardRule::kRegex, std::string(40, 'a') + "b", pattern), 0);
}

TEST(RewardRules, RefuseAnswersThatTheyCannotUse) {
  const auto refused = [](RewardRule rule, const char* answer) {
    const Status status = check_known_answer(rule, answer, "d.jsonl:3");
    return status ? std::string() : status.error().message;
  };
  EXPECT_THAT(refused(RewardRule::kExact, " \n"),
              HasSubstr("d.jsonl:3: field \"answer\" is empty"));
  EXPECT_THAT(refused(RewardRule::kNumber, "none"), HasSubstr("holds no number"));
  EXPECT_THAT(refused(RewardRule::kRegex, "(a"), HasSubstr("d.jsonl:3"));
  EXPECT_EQ(refused(RewardRule::kContains, "(a"), "");
}

}  // namespace
}  // namespace jige::train
