#include "grammar/regex.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <set>

#include "grammar/grammar_test_support.h"
#include "text/unicode.h"

namespace jige::grammar {
namespace {

using testing::acceptor_of;
using testing::compiled;
using testing::fits;
using testing::Kind;

ConstraintSource regex(const std::string& pattern) { return {Kind::kRegex, pattern}; }

using Places = std::set<size_t>;

Places ends_of(const RegexNode& node, const std::string& text, const Places& places);

Places ends_of_repeat(const RegexNode& node, const std::string& text, Places places) {
  Places ends;
  // More rounds than the text has bytes add nothing behind the least.
  const auto most = node.counts.min + static_cast<int32_t>(text.size()) + 1;
  for (int32_t count = 0; count <= most; ++count) {
    if (count >= node.counts.min) ends.insert(places.begin(), places.end());
    if (count == node.counts.max) break;
    places = ends_of(node.parts[0], text, places);
  }
  return ends;
}

// A plain matcher: all places at which `node` can end when it begins at one of `places`.
Places ends_of(const RegexNode& node, const std::string& text, const Places& places) {
  Places ends;
  switch (node.kind) {
    case RegexNode::Kind::kEmpty:
      return places;
    case RegexNode::Kind::kCharacter:
      for (const size_t at : places) {
        if (at >= text.size()) continue;
        const text::Decoded decoded = text::decode_utf8(std::string_view(text).substr(at));
        if (decoded.valid && node.characters.contains(decoded.code_point)) {
          ends.insert(at + decoded.size);
        }
      }
      return ends;
    case RegexNode::Kind::kSequence:
      ends = places;
      for (const RegexNode& part : node.parts) ends = ends_of(part, text, ends);
      return ends;
    case RegexNode::Kind::kAlternatives:
      for (const RegexNode& part : node.parts) ends.merge(ends_of(part, text, places));
      return ends;
    case RegexNode::Kind::kRepeat:
      return ends_of_repeat(node, text, places);
  }
  return ends;
}

bool matches_whole(const RegexNode& node, const std::string& text) {
  return ends_of(node, text, {0}).contains(text.size());
}

std::string random_pattern(Rng& rng, int depth) {
  static const std::string kAtoms[] = {"a", "b", ".", "[ab]", "[^a]", "[a-c]", "\\w", "c", "ä"};
  if (depth == 0 || rng.below(3) == 0) return kAtoms[rng.below(std::size(kAtoms))];
  const std::string one = random_pattern(rng, depth - 1);
  static const std::string kRepeats[] = {"*", "+", "?", "{2}", "{1,2}", "{0,3}", "{2,}"};
  switch (rng.below(4)) {
    case 0:
      return one + random_pattern(rng, depth - 1);
    case 1:
      return "(" + one + "|" + random_pattern(rng, depth - 1) + ")";
    case 2:
      return "(?:" + one + ")" + kRepeats[rng.below(std::size(kRepeats))];
    default:
      return one + random_pattern(rng, depth - 1) + "(|" + one + ")";
  }
}

TEST(Regex, FitsTheTextsThatAPlainMatcherMatches) {
  std::vector<std::string> texts = {""};
  for (size_t i = 0; texts[i].size() < 5; ++i) {
    for (const char* more : {"a", "b", "ä"}) texts.push_back(texts[i] + more);
  }
  Rng rng(derive_key(1, "regex"));
  int compared = 0, fitting = 0;
  for (int round = 0; round < 300; ++round) {
    const std::string pattern = random_pattern(rng, 3);
    SCOPED_TRACE(pattern);
    const auto parsed = parse_regex(pattern);
    ASSERT_TRUE(parsed) << parsed.error().message;
    const auto grammar = compiled(regex(pattern));
    if (!grammar) continue;
    Acceptor acceptor = *Acceptor::create(*grammar);
    for (const std::string& text : texts) {
      const bool wanted = matches_whole(*parsed, text);
      ASSERT_EQ(fits(acceptor, text), wanted) << text;
      fitting += wanted ? 1 : 0;
      ++compared;
    }
  }
  EXPECT_GT(fitting, compared / 50);
}

TEST(Regex, ReadsEscapesAndClasses) {
  struct Case {
    std::string pattern;
    std::vector<std::string> good, bad;
  };
  const std::vector<Case> cases = {
      {R"(\d{4}-\d{2})", {"2024-01"}, {"2024-1", "x024-01", "2024-01 "}},
      {R"(^(yes|no)$)", {"yes", "no"}, {"yesno", ""}},
      {R"(^a|b$)", {"a", "b"}, {"ab"}},
      {R"(\x41\u00e9\.\/)", {"A\u00e9./"}, {"Aé"}},
      {R"([\]\-a\d])", {"]", "-", "a", "7"}, {"b", "\\"}},
      {R"([]a-])", {"]", "a", "-"}, {"b"}},
      {R"([^\x00-\u07ff])", {"\u4e00", "\U0001F600", "\u0800", "\uFFFF"}, {"a", "\u07ff"}},
      {R"(a{,2}b{x})", {"a{,2}b{x}"}, {"aab"}},
      {R"(\s\S\w\W)", {" a_-"}, {"aaaa"}},
      {R"(a+?b*?)", {"a", "aabb"}, {"b"}},
      {R"(.)", {"x", "\u00e9", "\U0010FFFF"}, {"\n", "\xff", "\xed\xa0\x80", "ab"}},
  };
  for (const Case& one : cases) {
    for (const std::string& text : one.good) EXPECT_TRUE(fits(regex(one.pattern), text)) << text;
    for (const std::string& text : one.bad) EXPECT_FALSE(fits(regex(one.pattern), text)) << text;
  }
}

TEST(Regex, RefusesWhatItDoesNotRead) {
  for (const std::string pattern :
       {"(a",       "a)",     "[a",  "*a",     "a**",   "a{2}{3}", "a++",  "(?=a)",
        "(?<n>a)",  "\\b",    "\\1", "\\p{L}", "[z-a]", "[\\d-z]", "\\x4", "\\ud800",
        "a{10001}", "a{3,2}", "a^b", "a$b",    "\\",    "\xff",    "",     "a{0}"}) {
    EXPECT_FALSE(compiled(regex(pattern))) << pattern;
  }
  EXPECT_FALSE(compiled(regex(std::string(200, '(') + "a" + std::string(200, ')'))));
  EXPECT_FALSE(compiled(regex(std::string(kRegexBytesMax + 1, 'a'))));
  EXPECT_FALSE(compiled({Kind::kRegex, 5}));
}

TEST(Regex, CountsAreRulesSoNestedOnesStaySmall) {
  const auto grammar = compiled(regex("((a{1000}b?){1000}c){1000}"));
  ASSERT_TRUE(grammar) << grammar.error().message;
  EXPECT_LT((*grammar)->node_count(), 10'000u);
  EXPECT_FALSE(compiled(regex("(" + std::string(60'000, '.') + "){3}")));
}

TEST(Choices, AreTakenWhole) {
  const ConstraintSource source{Kind::kChoices, Json::array({"a", "ab", "abc", "b c", "a"})};
  for (const char* text : {"a", "ab", "abc", "b c"}) EXPECT_TRUE(fits(source, text)) << text;
  for (const char* text : {"", "b", "abcd", "c"}) EXPECT_FALSE(fits(source, text)) << text;
  for (const Json& bad : {Json::array(), Json("a"), Json::array({1}), Json::array({""}), Json()}) {
    EXPECT_FALSE(compiled({Kind::kChoices, bad})) << bad;
  }
}

}  // namespace
}  // namespace jige::grammar
