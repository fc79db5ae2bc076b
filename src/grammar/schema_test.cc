#include "grammar/schema.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "grammar/grammar_test_support.h"
#include "grammar/schema_test_support.h"

namespace jige::grammar {
namespace {

using testing::acceptor_of;
using testing::compiled;
using testing::fits;
using testing::Kind;
using testing::validates;

ConstraintSource schema_of(const std::string& text) {
  return {Kind::kJsonSchema, *parse_json(text, "schema")};
}

struct Case {
  std::string schema;
  std::vector<std::string> good, bad;
};

void expect_cases(const std::vector<Case>& cases) {
  for (const Case& one : cases) {
    SCOPED_TRACE(one.schema);
    Acceptor acceptor = acceptor_of(schema_of(one.schema));
    for (const std::string& text : one.good) EXPECT_TRUE(fits(acceptor, text)) << text;
    for (const std::string& text : one.bad) EXPECT_FALSE(fits(acceptor, text)) << text;
  }
}

TEST(Schema, ReadsValues) {
  expect_cases({
      {"true", {"1", "{}", "\"a\""}, {"a"}},
      {R"({"title":"any"})", {"null"}, {""}},
      {R"({"type":"integer"})", {"0", "-12"}, {"1.5", "01", "-", "\"1\""}},
      {R"({"type":["integer","null"],"minimum":-1,"maximum":1})",
       {"-1", "0", "1", "null"},
       {"-2", "2", "10"}},
      {R"({"type":"integer","minimum":0.0,"exclusiveMaximum":1e30})",
       {"0", "999999999999999999"},
       {"-1", "1000000000000000000"}},
      {R"({"type":"string","minimum":5})", {"\"a\""}, {"5"}},
      {R"({"type":"number"})", {"0", "-1.5e-7"}, {"1.", "null"}},
      {R"({"type":"number","minimum":0,"maximum":1})",
       {"0", "0.0", "1", "1.000", "0.999999999999999999"},
       {"-0", "-0.5", "1.001", "2", "10", "1e-1", "0.", ".5", "0.1234567890123456789"}},
      {R"({"exclusiveMinimum":-0.25,"exclusiveMaximum":0.1})",
       {"-0.249999", "0", "0.099", "-0.1"},
       {"-0.25", "-0.250", "0.1", "0.10", "-0.3", "-1", "0.2"}},
      {R"({"type":"number","minimum":99.5})",
       {"99.5", "99.51", "100", "999999999999999999.5"},
       {"99.49", "99", "-100", "9.95", "1000000000000000000"}},
      {R"({"type":["boolean","null"]})", {"true", "false", "null"}, {"0"}},
      {R"({"enum":["a","ab",1,{"b":[1]}]})", {"\"a\"", "\"ab\"", "1", R"({"b":[1]})"}, {"\"b\""}},
      {R"({"enum":["a",1],"type":"string"})", {"\"a\""}, {"1"}},
      {R"({"const":"x\n"})", {R"("x\n")"}, {"\"x\""}},
      {R"({"type":"string","minLength":1,"maxLength":2})",
       {"\"a\"", "\"éé\"", R"("\n\ud83d\ude00")"},
       {"\"\"", "\"aaa\""}},
      {R"({"pattern":"^a+\"?$"})", {"\"aa\"", R"("a\"")"}, {"\"b\"", "\"a\"\""}},
      {R"({"type":"boolean","nullable":true})", {"null", "true"}, {"1"}},
      {R"({"anyOf":[{"type":"integer"},{"const":"a"}]})", {"5", "\"a\""}, {"\"b\""}},
      {R"({"allOf":[{"type":"integer"}]})", {"5"}, {"\"b\""}},
  });
}

TEST(Schema, FormatsOfTextsAreKept) {
  expect_cases({
      {R"({"type":"string","format":"date"})",
       {"\"2024-02-29\"", "\"2000-02-29\"", "\"0001-12-31\"", "\"1900-02-28\""},
       {"\"2023-02-29\"", "\"1900-02-29\"", "\"2024-13-01\"", "\"2024-04-31\"", "\"0000-01-01\"",
        "\"0000-02-29\"", "\"2024-1-1\"", "\"today\"", "\"\""}},
      {R"({"type":"string","format":"date-time"})",
       {"\"2024-05-31T23:59:59Z\"", "\"2024-05-31T00:00:00.125+02:00\""},
       {"\"2024-05-31\"", "\"2024-05-31T24:00:00Z\"", "\"2024-05-31T10:00:00\""}},
      {R"({"type":"string","format":"time"})", {"\"10:20:30Z\""}, {"\"10:20Z\"", "\"10:60:00Z\""}},
      {R"({"type":"string","format":"duration"})",
       {"\"P3D\"", "\"P1DT2H\"", "\"PT90M5S\""},
       {"\"P\"", "\"PT\"", "\"P1DT\"", "\"PT1S2H\""}},
      {R"({"type":"string","format":"uuid"})",
       {"\"01234567-89ab-cdef-0123-456789abcdef\""},
       {"\"0123456789abcdef0123456789abcdef\""}},
      {R"({"type":"string","format":"email"})",
       {"\"a.b+c@mail.example.org\""},
       {"\"a@b\"", "\"a b@example.org\"", "\".a@example.org\"", "\"a@-b.org\""}},
      {R"({"type":"string","format":"hostname"})", {"\"a-1.example\""}, {"\"-a\"", "\"a..b\""}},
      {R"({"type":"string","format":"ipv4"})",
       {"\"0.255.30.199\""},
       {"\"1.2.3\"", "\"256.1.1.1\"", "\"01.1.1.1\""}},
      {R"({"type":"string","format":"ipv6"})", {"\"0:0:0:0:0:0:0:1\""}, {"\"1:2\"", "\"g::1\""}},
      {R"({"type":"string","format":"colour"})", {"\"red\""}, {"5"}},
      {R"({"format":"date"})", {"\"red\"", "5"}, {"red"}},
      {R"({"type":"string","format":"date","maxLength":3})", {"\"red\""}, {"\"2024-02-29\""}},
      {R"({"type":["string","null"],"format":"date"})", {"null", "\"2024-02-29\""}, {"\"\""}},
  });
}

TEST(Schema, ReadsObjects) {
  expect_cases({
      {R"({"properties":{"a":{"type":"integer"},"b":{"type":"null"},"c":{"type":"null"}},
          "required":["b"]})",
       {R"({"b":null})", R"({"a":1,"b":null})", R"({ "a": 1, "b": null, "c": null })"},
       {"{}", R"({"a":1})", R"({"b":null,"a":1})", R"({"b":null,"d":1})", R"({,"b":null})"}},
      {R"({"type":"object"})", {"{}", R"({"x":[1]})"}, {"[]"}},
      {R"({"type":"object","properties":{}})", {"{}"}, {R"({"x":1})"}},
      {R"({"properties":{"a":{"type":"null"},"ab":{"type":"null"},"ä":{"type":"null"}},
          "additionalProperties":{"type":"integer"}})",
       {"{}", R"({"b":1})", R"({"a":null,"abc":1,"aa":2})", R"({"":1})", R"({"ö":1})",
        R"({"ab":null,"x":1})", R"({"aä":1})"},
       {R"({"a":1})", R"({"ab":1})", R"({"ä":1})", R"({"b":null})", R"({"\u0061":1})"}},
      {R"({"additionalProperties":{"type":"integer"},"required":["k"]})",
       {R"({"k":1,"z":2})"},
       {R"({"z":2})", R"({"k":1,"k":2})"}},
  });
}

TEST(Schema, ReadsArrays) {
  expect_cases({
      {R"({"type":"array"})", {"[]", "[1, null]"}, {"[1,]"}},
      {R"({"items":{"type":"integer"},"minItems":2})", {"[1,2]", "[1,2,3]"}, {"[]", "[1]"}},
      {R"({"items":{"type":"integer"},"maxItems":2})", {"[]", "[ 1, 2 ]"}, {"[1,2,3]", "[,1]"}},
      {R"({"items":{"type":"integer"},"maxItems":0})", {"[]"}, {"[1]"}},
      {R"({"prefixItems":[{"type":"integer"},{"type":"null"}]})",
       {"[]", "[1]", "[1,null]"},
       {"[null]", "[1,null,1]"}},
      {R"({"prefixItems":[{"type":"null"}],"items":{"type":"integer"},"minItems":2})",
       {"[null,1]", "[null,1,2]"},
       {"[null]", "[1]", "[null,null]"}},
  });
}

TEST(Schema, FollowsReferencesAlsoInCircles) {
  const ConstraintSource list = schema_of(R"({"$ref":"#/$defs/list","$defs":{"list":{
      "properties":{"next":{"anyOf":[{"$ref":"#/$defs/list"},{"type":"null"}]}},
      "required":["next"]},"a/b~":{"type":"null"}}})");
  EXPECT_TRUE(fits(list, R"({"next":null})"));
  EXPECT_TRUE(fits(list, R"({"next":{"next":{"next":null}}})"));
  EXPECT_FALSE(fits(list, R"({"next":{}})"));
  EXPECT_TRUE(fits(schema_of(R"({"items":{"$ref":"#"}})"), "[[],[[]]]"));
  EXPECT_TRUE(fits(schema_of(R"({"anyOf":[{"$ref":"#"},{"type":"null"}]})"), "null"));
  EXPECT_TRUE(
      fits(schema_of(R"({"$ref":"#/$defs/a~1b~0","$defs":{"a/b~":{"type":"null"}}})"), "null"));
}

TEST(Schema, RefusesWhatItCannotKeepAndNamesThePlace) {
  const std::pair<const char*, const char*> cases[] = {
      {R"(5)", "# must be a schema"},
      {R"({"type":"integer","multipleOf":3})", "#/multipleOf is not supported"},
      {R"({"type":"number","minimum":3,"exclusiveMaximum":3})", "#: no number of up to 18 digits"},
      {R"({"minimum":1e18})", "#: no number of up to 18 digits"},
      {R"({"exclusiveMinimum":0,"exclusiveMaximum":1e-19})", "#: no number of up to 18 digits"},
      {R"({"type":"integer","minimum":true})", "#/minimum must be a number"},
      {R"({"type":"integer","minimum":3,"maximum":2.5})", "no whole number"},
      {R"({"type":"integer","exclusiveMinimum":3,"exclusiveMaximum":4})", "no whole number"},
      {R"({"type":"integer","minimum":1e18})", "no whole number of up to 18 digits"},
      {R"({"type":"integer","maximum":-18446744073709551615})", "no whole number"},
      {R"({"const":3,"minimum":3})", "#/minimum is not supported beside const"},
      {R"({"properties":{"a":{"items":{"uniqueItems":true}}}})",
       "#/properties/a/items/uniqueItems is not supported"},
      {R"({"anyOf":[{"type":"null"},{"not":{}}]})", "#/anyOf/1/not"},
      {R"({"type":"text"})", "#/type must be one of"},
      {R"({"type":[]})", "#/type"},
      {R"({"enum":[]})", "#/enum"},
      {R"({"enum":[1],"type":"string"})", "none of its values"},
      {R"({"properties":[]})", "#/properties must be"},
      {R"({"required":"a"})", "#/required must be"},
      {R"({"minItems":-1})", "#/minItems must be"},
      {R"({"maxLength":10001})", "#/maxLength must be"},
      {R"({"minLength":3,"maxLength":2})", "below minLength"},
      {"{\"pattern\":\"(?=a)\"}", "#/pattern"},
      {R"({"pattern":"a","minLength":1})", "#/pattern is not supported beside"},
      {R"({"$ref":"#/$defs/x"})", "there is no"},
      {R"({"$ref":"http://x"})", "only places in the same schema"},
      {R"({"$ref":"#","type":"null"})", "#/type is not supported beside $ref"},
      {R"({"anyOf":[true],"type":"null"})", "#/type is not supported beside anyOf"},
      {R"({"allOf":[true,true]})", "#/allOf"},
      {R"({"required":["a"],"additionalProperties":false})", "names \"a\""},
      {R"({"prefixItems":[true],"minItems":2})", "give \"items\""},
      {R"({"$ref":"#"})", "no text fits"},
      {"false", "no text fits"},
      {R"({"properties":{"a":{"$ref":"#"}},"required":["a"]})", "no text fits"},
  };
  for (const auto& [schema, message] : cases) {
    const auto grammar = compiled(schema_of(schema));
    ASSERT_FALSE(grammar) << schema;
    EXPECT_THAT(grammar.error().message, ::testing::HasSubstr(message)) << schema;
  }
}

// Thousandths against bounds of hundredths, with zeros behind them and digits beyond.
TEST(Schema, NumbersAreThoseWithinTheirBounds) {
  Rng rng(derive_key(8, "numbers"));
  const auto written = [](int64_t thousandths) {
    const int64_t size = std::abs(thousandths);
    std::string text =
        fmt::format("{}{}.{:03}", thousandths < 0 ? "-" : "", size / 1000, size % 1000);
    while (text.ends_with('0')) text.pop_back();
    if (text.ends_with('.')) text.pop_back();
    return text;
  };
  int grammars = 0;
  for (int round = 0; round < 80; ++round) {
    Json schema = {{"type", "number"}};
    int64_t low = INT64_MIN, high = INT64_MAX;  // in ten thousandths
    const int64_t span = rng.below(2) == 0 ? 30 : 3000;
    for (const char* name : {"minimum", "exclusiveMinimum", "maximum", "exclusiveMaximum"}) {
      if (rng.below(2) == 0) continue;
      const int64_t bound = static_cast<int64_t>(rng.below(2 * span)) - span;  // hundredths
      schema[name] = *parse_json(written(bound * 10), "a bound");
      const bool least = std::string(name).ends_with("inimum");
      const int64_t edge = bound * 100 + (name[0] == 'e' ? (least ? 1 : -1) : 0);
      (least ? low : high) = least ? std::max(low, edge) : std::min(high, edge);
    }
    if (schema.size() == 1) continue;
    SCOPED_TRACE(schema.dump());
    const auto grammar = compiled({Kind::kJsonSchema, schema});
    ASSERT_EQ(grammar.has_value(), low <= high);
    if (!grammar) continue;
    ++grammars;
    Acceptor acceptor = *Acceptor::create(*grammar);
    for (int64_t value = -10 * span; value <= 10 * span; ++value) {
      if (span > 30 && value % 10 != 0 && rng.below(8) != 0) continue;
      const bool within = low <= value * 10 && value * 10 <= high;
      const std::string text = written(value);
      if (value != 0) {
        ASSERT_EQ(fits(acceptor, text), within) << text;
        const std::string zeros = text + (text.find('.') == std::string::npos ? ".0" : "000");
        ASSERT_EQ(fits(acceptor, zeros), within) << zeros;
      }
      const int64_t further = value * 10 + (value < 0 ? -1 : 1);
      const std::string longer = fmt::format("{}{}.{:04}", value < 0 ? "-" : "",
                                             std::abs(further) / 10000, std::abs(further) % 10000);
      ASSERT_EQ(fits(acceptor, longer), low <= further && further <= high) << longer;
    }
  }
  EXPECT_GT(grammars, 30);
}

// Bounds of every kind against a comparison of numbers, 0.5 and digits that appear included.
TEST(Schema, IntegersAreThoseWithinTheirBounds) {
  Rng rng(derive_key(8, "bounds"));
  constexpr int64_t kMost = 999'999'999'999'999'999;
  const auto random_integer = [&]() -> int64_t {
    const auto digits = static_cast<int>(rng.below(19));
    int64_t value = 0;
    for (int i = 0; i < digits; ++i) value = value * 10 + static_cast<int64_t>(rng.below(10));
    return rng.below(2) == 0 ? value : -value;
  };
  int grammars = 0;
  for (int round = 0; round < 150; ++round) {
    Json schema = {{"type", "integer"}};
    int64_t low = -kMost, high = kMost;  // what the bounds leave
    for (const char* name : {"minimum", "exclusiveMinimum", "maximum", "exclusiveMaximum"}) {
      if (rng.below(2) == 0) continue;
      const bool least = std::string(name).ends_with("inimum");
      const bool exclusive = name[0] == 'e';
      int64_t bound =
          rng.below(3) == 0 ? random_integer() : static_cast<int64_t>(rng.below(4001)) - 2000;
      schema[name] = bound;
      if (rng.below(4) == 0 && std::abs(bound) < 100'000) {  // halves lie between two integers
        schema[name] = static_cast<double>(bound) + 0.5;
        if (least) ++bound;
      } else if (exclusive) {
        bound += least ? 1 : -1;
      }
      (least ? low : high) = least ? std::max(low, bound) : std::min(high, bound);
    }
    SCOPED_TRACE(schema.dump());
    const auto grammar = compiled({Kind::kJsonSchema, schema});
    ASSERT_EQ(grammar.has_value(), low <= high);
    if (!grammar) continue;
    ++grammars;
    Acceptor acceptor = *Acceptor::create(*grammar);
    const auto expect_right = [&](int64_t value) {
      if (std::abs(value) > kMost) return;
      ASSERT_EQ(fits(acceptor, std::to_string(value)), low <= value && value <= high) << value;
    };
    for (int64_t value = -2000; value <= 2000; ++value) expect_right(value);
    for (int64_t near = -2; near <= 2; ++near) {
      expect_right(low + near);
      expect_right(high + near);
    }
    for (int i = 0; i < 50; ++i) expect_right(random_integer());
    for (const char* bad : {"", "-", "01", "-01", "1.0", "1e2", "+1", "9999999999999999999"}) {
      EXPECT_FALSE(fits(acceptor, bad)) << bad;
    }
  }
  EXPECT_GT(grammars, 75);
}

TEST(Schema, WhatItLetsThroughValidates) {
  Rng rng(derive_key(7, "schema"));
  int schemas = 0, texts = 0;
  for (int round = 0; round < 120; ++round) {
    const Json schema = testing::random_root_schema(rng);
    SCOPED_TRACE(schema.dump());
    const auto grammar = compiled({Kind::kJsonSchema, schema});
    if (!grammar) continue;
    ++schemas;
    Acceptor acceptor = *Acceptor::create(*grammar);
    for (int i = 0; i < 4; ++i) {
      const std::string text = testing::random_text(acceptor, rng, rng.below(80));
      if (text.empty()) continue;
      ++texts;
      const auto value = parse_json(text, "text", 200);
      ASSERT_TRUE(value) << text << ": " << value.error().message;
      ASSERT_TRUE(validates(*value, schema, schema)) << text;
    }
  }
  EXPECT_GT(schemas, 90);
  EXPECT_GT(texts, 240);
}

}  // namespace
}  // namespace jige::grammar
