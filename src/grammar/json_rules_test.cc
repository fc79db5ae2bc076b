#include "grammar/json_rules.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "grammar/grammar_test_support.h"

namespace jige::grammar {
namespace {

using testing::acceptor_of;
using testing::fits;
using testing::Kind;
using testing::random_text;

const ConstraintSource kObject{Kind::kJsonObject, Json()};

TEST(JsonRules, TakesObjects) {
  for (const char* text :
       {"{}", R"({"a":1})", R"({"a": [1, {}, -0.5e+3, "x\"\ud83d\uDE00é"], "b":null})",
        "{\n  \"a\": true,\n  \"b\": [\n    1,\n    2\n  ]\n}", R"({ "a": false })"}) {
    EXPECT_TRUE(fits(kObject, text)) << text;
  }
}

TEST(JsonRules, RefusesWhatParsersRefuseAndEndlessSpace) {
  for (const char* text : {"",
                           "[]",
                           "1",
                           "{",
                           "{} ",
                           " {}",
                           R"({"a"})",
                           R"({"a":1,})",
                           R"({"a":01})",
                           R"({"a":.5})",
                           R"({"a":1.})",
                           R"({"a":+1})",
                           R"({"a":"\x"})",
                           R"({"a":"\ud800"})",
                           R"({"a":"\udc00x"})",
                           "{\"a\":\"\n\"}",
                           R"({"a":1e999})",
                           R"({"a":  1})",
                           R"({  "a":1})",
                           "{\n\n}",
                           "{\"a\":\"\xff\"}",
                           R"({a:1})",
                           R"({'a':1})",
                           R"({"a" :1})"}) {
    EXPECT_FALSE(fits(kObject, text)) << text;
  }
  EXPECT_FALSE(fits(kObject, "{\n" + std::string(kIndentMax + 1, ' ') + "\"a\":1}"));
}

TEST(JsonRules, WhatTheyLetThroughParses) {
  Acceptor acceptor = acceptor_of(kObject);
  Rng rng(derive_key(5, "json"));
  int ended = 0;
  for (int round = 0; round < 300; ++round) {
    const std::string text = random_text(acceptor, rng, rng.below(120));
    if (text.empty()) continue;
    ++ended;
    const auto parsed = parse_json(text, "text");
    ASSERT_TRUE(parsed) << text << ": " << parsed.error().message;
    EXPECT_TRUE(parsed->is_object());
  }
  EXPECT_GT(ended, 250);
}

// The deepest text: an array in an array, as long as one may open.
TEST(JsonRules, NestOnlyAsDeepAsParsersRead) {
  for (const std::string open : {"[", "{\"\":"}) {
    Acceptor acceptor = acceptor_of(kObject);
    std::string text = R"({"":)";
    int depth = 1;
    while (testing::state_behind(acceptor, text + open) != kNoState) {
      text += open;
      ASSERT_LT(++depth, 200);
    }
    EXPECT_GT(depth, 20);
    for (size_t i = 0; i < 200 && !fits(acceptor, text); ++i) {
      for (const char* byte : {"}", "]", "null"}) {
        if (testing::state_behind(acceptor, text + byte) == kNoState) continue;
        text += byte;
        break;
      }
    }
    const auto parsed = parse_json(text, "text");
    EXPECT_TRUE(parsed) << text;
  }
}

}  // namespace
}  // namespace jige::grammar
