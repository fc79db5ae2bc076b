#include "text/regex.h"

#include <gtest/gtest.h>

#include "text/regex_syntax.h"

namespace jige::text {
namespace {

std::vector<std::string> matches(std::string_view pattern, std::string_view text) {
  const auto regex = Regex::compile(pattern, "test");
  EXPECT_TRUE(regex.has_value()) << regex.error().message;
  if (!regex) return {};
  RegexScratch scratch;
  std::vector<Range> ranges;
  const auto status = regex->find_all(text, scratch, ranges);
  EXPECT_TRUE(status.has_value()) << status.error().message;
  std::vector<std::string> found;
  for (const Range& range : ranges) {
    found.emplace_back(text.substr(range.begin, range.end - range.begin));
  }
  return found;
}

using Found = std::vector<std::string>;

Code refusal(std::string_view pattern) {
  const auto regex = Regex::compile(pattern, "tokenizer.json: pre_tokenizer");
  EXPECT_FALSE(regex.has_value()) << pattern;
  if (regex) return Code::kInternal;
  EXPECT_NE(regex.error().message.find("tokenizer.json"), std::string::npos);
  return regex.error().code;
}

TEST(Regex, FindsAllMatchesFromTheLeft) {
  EXPECT_EQ(matches("a+", "aa b a"), (Found{"aa", "a"}));
  EXPECT_EQ(matches(R"(\p{L}+|\d)", "ab\xC3\xA9 12"), (Found{"ab\xC3\xA9", "1", "2"}));
}

TEST(Regex, LeavesOutAnEmptyMatchBehindAnotherMatch) {
  EXPECT_EQ(matches("x*", "axb"), (Found{"", "x", ""}));
  EXPECT_EQ(matches("", "\xE7\x8C\xAB"), (Found{"", ""}));
}

TEST(Regex, ReadsClassesAsOnigurumaDoes) {
  EXPECT_EQ(matches(R"(\h+)", "xyz BEEF 12g"), (Found{"BEEF", "12"}));
  EXPECT_EQ(matches(R"(\s)", "a\xE1\xA0\x8E" "b c"), (Found{" "})) << "U+180E is no space";
  EXPECT_EQ(matches(R"((?m:a.))", "a\nab"), (Found{"a\n", "ab"}));
  EXPECT_EQ(matches("^b", "a\nb"), (Found{"b"}));
  EXPECT_EQ(matches(R"(\u732b)", "\xE7\x8C\xAB"), (Found{"\xE7\x8C\xAB"}));
  EXPECT_EQ(matches("ab{,2}", "abbb"), (Found{"abb"}));
}

TEST(Regex, ReadsClassesInsideClassesAndIntersections) {
  EXPECT_EQ(matches("[a-w&&[^c-g]z]+", "abcdz hello"), (Found{"ab", "h", "llo"}));
  EXPECT_EQ(matches("[^a-w&&[^c-g]]+", "abcdz hello"), (Found{"cdz ", "e"}));
  EXPECT_EQ(matches("[a[bc]d]+", "xabcdx"), (Found{"abcd"}));
  EXPECT_EQ(matches("[^a[bc]]+", "xabcx\n"), (Found{"x", "x\n"}));
  EXPECT_EQ(matches("[[^a-x]^b]+", "yab^z"), (Found{"y", "b^z"}));
  EXPECT_EQ(matches("[[a]-[c]]+", "abc-"), (Found{"a", "c-"})) << "no range of classes";
  EXPECT_EQ(matches("(?i)[a-z&&[^w]]+", "AWb"), (Found{"A", "b"}));
}

TEST(Regex, WordsEndWhereOnigurumaSaysSo) {
  // Oniguruma's word characters include marks (here U+FE0F and a vowel sign), connectors and some
  // superscripts; PCRE2's do not include all of these.
  EXPECT_EQ(matches(R"(\d\b)", "1\xEF\xB8\x8F\xE2\x83\xA3 2 3_ 4\xE2\x80\xBF 5\xC2\xB2 6."),
            (Found{"2", "6"}));
  EXPECT_EQ(matches(R"(\B.)", "a\xE0\xA4\xBE b"), (Found{"\xE0\xA4\xBE"}));
  EXPECT_EQ(matches(R"(\d{1,3}(?=(?:\d{3})*\b))", "1234567 12"), (Found{"1", "234", "567", "12"}));
  EXPECT_EQ(matches("[\\b]", "a\b"), (Found{"\b"}));
}

TEST(Regex, RefusesWhatWouldBeMisread) {
  EXPECT_EQ(refusal("[a&&]"), Code::kUnsupported);
  EXPECT_EQ(refusal("[&&a]"), Code::kUnsupported);
  EXPECT_EQ(refusal("[a[]b]]"), Code::kUnsupported);
  EXPECT_EQ(refusal("a{1,2}+"), Code::kUnsupported);
  EXPECT_EQ(refusal("(*ACCEPT)a"), Code::kUnsupported);
  EXPECT_EQ(refusal(R"(a\Kb)"), Code::kUnsupported);
  EXPECT_EQ(refusal("a(?i)b|c"), Code::kUnsupported);
  EXPECT_EQ(refusal(R"([\Wa])"), Code::kUnsupported);
}

TEST(Regex, RefusesBrokenPatterns) {
  EXPECT_EQ(refusal("(a"), Code::kCorrupt);
  EXPECT_EQ(refusal("[a"), Code::kCorrupt);
  EXPECT_EQ(refusal("[a[b]"), Code::kCorrupt);
  EXPECT_EQ(refusal("[a&&b"), Code::kCorrupt);
  EXPECT_EQ(refusal(std::string(300, '[') + "a" + std::string(300, ']')), Code::kUnsupported);
  EXPECT_EQ(refusal("a\\"), Code::kCorrupt);
  EXPECT_EQ(refusal(R"(\p{NoSuchScript})"), Code::kCorrupt);
  EXPECT_EQ(refusal("\xFF"), Code::kCorrupt);
  EXPECT_EQ(refusal(std::string(100 << 10, 'a')), Code::kUnsupported);
  EXPECT_EQ(refusal(std::string(300, '(') + std::string(300, ')')), Code::kCorrupt);
}

TEST(Regex, EndsWhenAPatternRunsAway) {
  const auto regex = Regex::compile("(a+)+$", "test");
  ASSERT_TRUE(regex.has_value());
  RegexScratch scratch;
  std::vector<Range> ranges;
  const auto status = regex->find_all(std::string(5000, 'a') + "b", scratch, ranges);
  ASSERT_FALSE(status.has_value());
  EXPECT_EQ(status.error().code, Code::kExhausted);
}

TEST(Regex, HasNoTroubleWithAMillionSpaces) {
  const std::string pattern =
      R"([^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
  const std::string text = std::string(1 << 20, ' ') + "x";
  const auto found = matches(pattern, text);
  ASSERT_EQ(found.size(), 2u);
  EXPECT_EQ(found[1], " x");
}

}  // namespace
}  // namespace jige::text
