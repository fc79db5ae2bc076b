#include "grammar/ebnf.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "grammar/grammar_test_support.h"

namespace jige::grammar {
namespace {

using testing::fits;
using ::testing::HasSubstr;
using testing::Kind;

bool fits_rules(const std::string& rules, std::string_view text) {
  return fits(ConstraintSource{Kind::kEbnf, rules}, text);
}

std::string message_of(const std::string& rules) {
  const auto grammar = compile_grammar({Kind::kEbnf, rules});
  EXPECT_FALSE(grammar) << rules;
  return grammar ? "" : grammar.error().message;
}

TEST(Ebnf, ReadsWhatRulesSay) {
  constexpr const char* kGreeting = R"x(
# A greeting.
root ::= greeting (", " name)* "!"  # and its end
greeting ::= "Hello" | "Hi"
name ::= [A-Z] [a-z]{1,3}
)x";
  for (const char* good : {"Hi!", "Hello, Bob!", "Hi, Eva, Hugo!"}) {
    EXPECT_TRUE(fits_rules(kGreeting, good)) << good;
  }
  for (const char* bad : {"", "Hi", "hi!", "Hi, B!", "Hi, Hugos!", "Hi,Eva!"}) {
    EXPECT_FALSE(fits_rules(kGreeting, bad)) << bad;
  }
}

TEST(Ebnf, RulesMayCallEachOtherInCircles) {
  constexpr const char* kSums = R"x(root  ::= (sum "=" space? number "\n")+
sum   ::= term ([-+*/] term)*
term  ::= number | "(" space? sum ")" space?
number ::= [0-9]+ space?
space ::= [ \t]+)x";
  EXPECT_TRUE(fits_rules(kSums, "1+2=3\n"));
  EXPECT_TRUE(fits_rules(kSums, "(1 +(2*3))-4 = 3\n0=0\n"));
  EXPECT_FALSE(fits_rules(kSums, "(1+2=3\n"));
  EXPECT_FALSE(fits_rules(kSums, "1+=3\n"));
}

TEST(Ebnf, TextsAndClassesHaveEscapes) {
  EXPECT_TRUE(fits_rules(R"(root ::= "\"\\\n\t\x41\u00e9\U0001F600[")", "\"\\\n\tAé😀["));
  EXPECT_TRUE(fits_rules(R"(root ::= [\]\-\^"a]+)", "]-^\"a"));
  EXPECT_TRUE(fits_rules(R"(root ::= [^a-z\n]+)", "Aé😀"));
  EXPECT_FALSE(fits_rules(R"(root ::= [^a-z\n]+)", "a"));
  EXPECT_TRUE(fits_rules("root ::= [а-я]{2} .", "ой\n"));
  EXPECT_TRUE(fits_rules("root ::= [a-]+", "a-"));
}

TEST(Ebnf, Repeats) {
  EXPECT_TRUE(fits_rules(R"(root ::= "a"{3})", "aaa"));
  EXPECT_FALSE(fits_rules(R"(root ::= "a"{3})", "aa"));
  EXPECT_TRUE(fits_rules(R"x(root ::= ("ab" | "c"){2,})x", "cabab"));
  EXPECT_FALSE(fits_rules(R"x(root ::= ("ab" | "c"){2,})x", "c"));
  EXPECT_TRUE(fits_rules(R"(root ::= x ? "b" x ::= "a")", "b"));
  EXPECT_TRUE(fits_rules(R"(root ::= ("a"*)* "b")", "aab"));
}

TEST(Ebnf, LinesEndWhereTheyLike) {
  EXPECT_TRUE(fits_rules("root ::=\n  \"a\"\n  | b\n  | \"c\"\nb\n::= (\n\"b\"\n\"d\"\n)", "bd"));
  EXPECT_TRUE(fits_rules("root ::= \"a\" |", "a")) << "nothing is an alternative";
}

TEST(Ebnf, RefusesWhatIsWrongAndNamesThePlace) {
  EXPECT_THAT(message_of("x ::= \"a\""), HasSubstr("no rule \"root\""));
  EXPECT_THAT(message_of("root ::= a\nb ::= \"b\""),
              HasSubstr("byte 9, in line 1: the rule \"a\""));
  EXPECT_THAT(message_of("root ::= \"a\"\nroot ::= \"b\""), HasSubstr("line 2: the rule \"root\""));
  EXPECT_THAT(message_of("root ::= \"a"), HasSubstr("quote"));
  EXPECT_THAT(message_of("root ::= [a"), HasSubstr("\"]\" is missing"));
  EXPECT_THAT(message_of("root ::= [z-a]"), HasSubstr("runs back"));
  EXPECT_THAT(message_of("root ::= []"), HasSubstr("no character"));
  EXPECT_THAT(message_of("root ::= (\"a\""), HasSubstr("\")\" is missing"));
  EXPECT_THAT(message_of("root ::= \"a\")"), HasSubstr("does not belong"));
  EXPECT_THAT(message_of("root ::= <think>"), HasSubstr("is expected"));
  EXPECT_THAT(message_of("root = \"a\""), HasSubstr("\"::=\""));
  EXPECT_THAT(message_of("root ::= \"a\"**"), HasSubstr("use a group"));
  EXPECT_THAT(message_of("root ::= \"a\"{2,1}"), HasSubstr("less than its least"));
  EXPECT_THAT(message_of("root ::= \"a\"{10001}"), HasSubstr("more than 10000"));
  EXPECT_THAT(message_of("root ::= \"a\"{x}"), HasSubstr("{m,n}"));
  EXPECT_THAT(message_of(R"x(root ::= "\q")x"), HasSubstr("escapes"));
  EXPECT_THAT(message_of(R"x(root ::= "\uD800")x"), HasSubstr("no character"));
  EXPECT_THAT(message_of("root ::= \"\""), HasSubstr("empty text"));
  EXPECT_THAT(message_of("root ::= \"\xFF\""), HasSubstr("UTF-8"));
  EXPECT_THAT(message_of("root ::= " + std::string(60, '(')), HasSubstr("more than 48 deep"));
  EXPECT_THAT(message_of(std::string(kEbnfBytesMax + 1, ' ')), HasSubstr("at most 65536"));
  EXPECT_THAT(message_of("root ::= \"a\" root"), HasSubstr("no text fits"));
}

TEST(Ebnf, RefusesLeftRecursionHoweverItHides) {
  for (const char* rules :
       {"root ::= root \"a\" | \"b\"", "root ::= a a ::= b \"x\" b ::= c? a | \"z\" c ::= \"c\"",
        "root ::= \"x\" a a ::= \"\" (b) \"y\" b ::= \"q\"* a | \"z\"", "root ::= (root)* \"a\""}) {
    EXPECT_THAT(message_of(rules), HasSubstr("can begin with itself")) << rules;
  }
  EXPECT_THAT(message_of("root ::= \"x\" a a ::= a \"y\" | \"z\""), HasSubstr("\"a\""));
  EXPECT_TRUE(fits_rules("root ::= \"a\" root | \"b\"", "aaab"));
}

}  // namespace
}  // namespace jige::grammar
