#include "base/json.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "base/rng.h"
#include "base/test_fuzz_rounds.h"
#include "base/test_processor_watch.h"

namespace jige {
namespace {

Result<Json> parse(std::string_view text) { return parse_json(text, "here"); }

TEST(Json, HasNoMoreValuesThanAreAllowed) {
  const std::string text = R"({"a": [1, null, {}], "b": "x"})";
  EXPECT_TRUE(parse_json(text, "t", kJsonDepthMax, 6));
  const auto refused = parse_json(text, "t", kJsonDepthMax, 5);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().message, "t: the JSON has more than 5 values");
}

TEST(Json, ParsesAndPrintsInTheOrderOfTheText) {
  const std::string text = R"({"b":1,"a":[true,null,-2.5,"x\"é😀"],"c":{}})";
  const auto json = parse(text);
  ASSERT_TRUE(json.has_value());
  EXPECT_EQ(dump_json(*json), text);
  EXPECT_EQ(dump_json(*parse("[1,{}]"), 2), "[\n  1,\n  {}\n]");
}

TEST(Json, NamesTheSourceAndPlaceOfASyntaxError) {
  for (const char* text : {"", " ", "{", "[1,]", "{\"a\":1,}", "{a:1}", "1 2", "nul", "\"open",
                           "[1e999]", "NaN", "Infinity", "'x'", "{\"a\"}", "// c\n1"}) {
    const auto json = parse(text);
    ASSERT_FALSE(json.has_value()) << text;
    EXPECT_EQ(json.error().code, Code::kCorrupt);
    EXPECT_EQ(json.error().message.find("here: "), 0u);
  }
  const auto json = parse("{\n  \"a\": ?\n}");
  EXPECT_NE(json.error().message.find("line 2"), std::string::npos) << json.error().message;
}

TEST(Json, RefusesInvalidUtf8) {
  for (const char* text : {"\"\xff\"", "\"\xc3\"", "\"\xed\xa0\x80\"", "\"\xf5\x80\x80\x80\"",
                           "\"\\ud800\"", "\"\\udc00x\""}) {
    EXPECT_FALSE(parse(text).has_value()) << text;
  }
}

std::string nested(int depth, char open, char close) {
  return std::string(static_cast<size_t>(depth), open) +
         std::string(static_cast<size_t>(depth), close);
}

TEST(Json, LimitsNesting) {
  EXPECT_TRUE(parse(nested(kJsonDepthMax, '[', ']')).has_value());
  const auto deep = parse(nested(kJsonDepthMax + 1, '[', ']'));
  ASSERT_FALSE(deep.has_value());
  EXPECT_EQ(deep.error().code, Code::kCorrupt);
  EXPECT_NE(deep.error().message.find("nested"), std::string::npos);
  EXPECT_TRUE(parse_json(nested(3, '[', ']'), "here", 3).has_value());
  EXPECT_FALSE(parse_json(nested(4, '[', ']'), "here", 3).has_value());
  // Far beyond any stack, closed or not.
  EXPECT_FALSE(parse(nested(1000000, '[', ']')).has_value());
  EXPECT_FALSE(parse(std::string(1000000, '[')).has_value());
  std::string objects;
  for (int i = 0; i < 100000; ++i) objects += "{\"a\":";
  EXPECT_FALSE(parse(objects).has_value());
}

TEST(Json, LimitsMembersOfOneObject) {
  const auto object_of = [](size_t members) {
    std::string text = "{";
    for (size_t i = 0; i < members; ++i) {
      text += (i ? ",\"" : "\"") + std::to_string(i) + "\":0";
    }
    return text + "}";
  };
  EXPECT_EQ(parse(object_of(kJsonMembersMax)).value().size(), kJsonMembersMax);
  const auto wide = parse(object_of(kJsonMembersMax + 1));
  ASSERT_FALSE(wide.has_value());
  EXPECT_NE(wide.error().message.find("members"), std::string::npos);
  // The limit is of one object, not of the text.
  const std::string half = object_of(kJsonMembersMax / 2 + 1);
  EXPECT_TRUE(parse("{\"a\":" + half + ",\"b\":" + half + "}").has_value());
}

// A list of objects of so many members each, 128 Ki members in all.
std::string objects_of(size_t members) {
  std::string text = "[";
  for (size_t i = 0; i < 8 * kJsonMembersMax; ++i) {
    const size_t member = i % members;
    text += fmt::format("{}\"{}\":0", member ? "," : i ? "},{" : "{", member + kJsonMembersMax);
  }
  return text + "}]";
}

// A request body of several megabytes must not hold up a server. A search for every name among
// those before it would take 64 times as long for the wide objects.
TEST(Json, TakesAsLongForOneWideObjectAsForManyNarrowOnes) {
  const auto seconds_of = [](const std::string& text) {
    const ProcessorWatch watch;
    const auto json = parse(text);
    const double seconds = watch.seconds();
    EXPECT_EQ(dump_json(json.value()), text);
    return seconds;
  };
  const double narrow_s = seconds_of(objects_of(kJsonMembersMax / 64));
  EXPECT_LT(seconds_of(objects_of(kJsonMembersMax)), 8 * narrow_s);
}

TEST(Json, TakesTheLastValueOfANameGivenTwiceInThePlaceOfTheFirst) {
  EXPECT_EQ(dump_json(*parse(R"({"a":{"x":1},"b":2,"a":[3]})")), R"({"a":[3],"b":2})");
  // Among few members and among many.
  std::string text = "{", expected = "{";
  for (int i = 0; i < 100; ++i) {
    const std::string name = std::to_string(i % 60);
    text += (i ? ",\"" : "\"") + name + "\":" + std::to_string(i);
    if (i >= 60) continue;
    expected += (i ? ",\"" : "\"") + name + "\":" + std::to_string(i < 40 ? i + 60 : i);
  }
  EXPECT_EQ(dump_json(*parse(text + "}")), expected + "}");
}

TEST(Json, RefusesWhatFollowsANulByte) {
  for (const std::string text : {"{\"a\":1}", "[]", "1", ""}) {
    const auto json = parse(text + '\0' + "]]");
    ASSERT_FALSE(json.has_value()) << text;
    EXPECT_EQ(json.error().code, Code::kCorrupt);
  }
}

// As a request to a server may bring them.
TEST(Json, ReadsAListOfManyObjectsInTimeThatGrowsWithTheText) {
  constexpr size_t kCount = 150'000;
  std::string text = "[";
  for (size_t i = 0; i < kCount; ++i) text += "{},";
  const ProcessorWatch watch;
  const auto json = parse(text + "{}]");
  EXPECT_LT(watch.seconds(), 5);
  ASSERT_TRUE(json.has_value());
  EXPECT_EQ(json->size(), kCount + 1);
}

TEST(Json, LooksIntoNoStringForItsLimits) {
  const auto json = parse_json(R"(["[[[[{\"a\":1}", {"\\": "]"}])", "here", 2);
  ASSERT_TRUE(json.has_value()) << json.error().message;
  EXPECT_FALSE(parse_json(R"(["\\", [[1]]])", "here", 2).has_value());
}

TEST(Json, ReadsIntegersOfAnySpelling) {
  const auto json = parse(R"({"a":7,"b":-3,"c":1e3,"d":2.0,"e":9007199254740993,
                             "min":-9223372036854775808,"max":9223372036854775807})");
  ASSERT_TRUE(json.has_value());
  EXPECT_EQ(get_int(*json, "a", "f").value(), 7);
  EXPECT_EQ(get_int(*json, "b", "f").value(), -3);
  EXPECT_EQ(get_int(*json, "c", "f").value(), 1000);
  EXPECT_EQ(get_int(*json, "d", "f").value(), 2);
  EXPECT_EQ(get_int(*json, "e", "f").value(), 9007199254740993);
  EXPECT_EQ(get_int(*json, "min", "f").value(), INT64_MIN);
  EXPECT_EQ(get_int(*json, "max", "f").value(), INT64_MAX);
  const auto bad = parse(R"({"a":2.5,"b":9223372036854775808,"c":1e300,"d":"7","e":true,"f":[1]})");
  for (const char* field : {"a", "b", "c", "d", "e", "f"}) {
    EXPECT_EQ(get_int(*bad, field, "f").error().code, Code::kInvalidArgument) << field;
  }
}

TEST(Json, TellsAbsentFromWrong) {
  const auto json = parse(R"({"n":null,"s":"text","i":1,"b":true,"x":1.5})");
  ASSERT_TRUE(json.has_value());
  EXPECT_EQ(get_int(*json, "none", "f").error().code, Code::kNotFound);
  EXPECT_EQ(get_int(*json, "n", "f").error().code, Code::kNotFound);
  EXPECT_EQ(get_int_or(*json, "none", 5, "f").value(), 5);
  EXPECT_EQ(get_int_or(*json, "n", 5, "f").value(), 5);
  EXPECT_EQ(get_int_or(*json, "s", 5, "f").error().code, Code::kInvalidArgument);
  EXPECT_EQ(get_number(*json, "x", "f").value(), 1.5);
  EXPECT_EQ(get_number(*json, "i", "f").value(), 1.0);
  EXPECT_EQ(get_number_or(*json, "n", 0.5, "f").value(), 0.5);
  EXPECT_EQ(get_number(*json, "b", "f").error().code, Code::kInvalidArgument);
  EXPECT_EQ(get_bool_or(*json, "b", false, "f").value(), true);
  EXPECT_EQ(get_bool_or(*json, "none", true, "f").value(), true);
  EXPECT_EQ(get_bool_or(*json, "i", true, "f").error().code, Code::kInvalidArgument);
  EXPECT_EQ(get_string(*json, "s", "f").value(), "text");
  EXPECT_EQ(get_string_or(*json, "n", "other", "f").value(), "other");
  EXPECT_EQ(get_string(*json, "i", "f").error().code, Code::kInvalidArgument);
  EXPECT_EQ(get_int(*parse("[1]"), "a", "f").error().code, Code::kNotFound);
  const std::string message = get_int(*json, "s", "config.json").error().message;
  for (const char* part : {"config.json", "\"s\"", "an integer", "text"}) {
    EXPECT_NE(message.find(part), std::string::npos) << message;
  }
}

TEST(Json, ShowsOnlyTheStartOfALongWrongValue) {
  Json json;
  json["a"] = std::string(100000, 'x');
  EXPECT_LT(get_int(json, "a", "f").error().message.size(), 200u);
}

TEST(Json, PrintsInvalidUtf8AsReplacement) {
  Json json;
  json["a"] = "x\xffy";
  EXPECT_EQ(dump_json(json), "{\"a\":\"x\xef\xbf\xbdy\"}");
}

TEST(Json, SurvivesMutatedTexts) {
  const uint64_t seed = 11;
  SCOPED_TRACE(seed);
  Rng rng(seed);
  const std::string original =
      R"({"model":"llama","layers":[1,2,{"eps":1e-5,"on":true,"off":null}],"s":"a\u00e9\\n😀"})";
  int accepted = 0;
  for (uint64_t round = 0; round < fuzz_rounds(20000); ++round) {
    std::string text = original;
    for (uint64_t edit = 0, edits = 1 + rng.below(4); edit < edits && !text.empty(); ++edit) {
      const size_t at = rng.below(text.size());
      switch (rng.below(5)) {
        case 0:
          text[at] = static_cast<char>(rng.below(256));
          break;
        case 1:
          text.erase(at, 1 + rng.below(5));
          break;
        case 2:
          text.insert(at, 1 + rng.below(3), "[]{}\",:0-e\\u"[rng.below(12)]);
          break;
        case 3:
          text.insert(at, text.substr(rng.below(text.size()), rng.below(20)));
          break;
        default:
          text.resize(at);
      }
    }
    const auto json = parse(text);
    if (!json) {
      ASSERT_EQ(json.error().code, Code::kCorrupt);
      continue;
    }
    ++accepted;
    (void)get_int(*json, "layers", "f");
    (void)get_string(*json, "s", "f");
    // What was accepted prints as JSON of the same value.
    const auto again = parse(dump_json(*json));
    ASSERT_TRUE(again.has_value()) << text;
    ASSERT_EQ(dump_json(*again), dump_json(*json));
  }
  EXPECT_GT(accepted, 100);
}

TEST(Json, SyntaxErrorsSayWhereAndWhatAndNotTheLibrarysName) {
  const auto said = [](const std::string& text) { return parse_json(text, "x").error().message; };
  EXPECT_EQ(said("not json"), "x: not valid JSON: column 2: invalid literal; last read: 'no'");
  EXPECT_EQ(said("{}\n[1,\n"),
            "x: not valid JSON: line 2, column 1: unexpected '['; expected end of input");
  EXPECT_EQ(said("{\"a\":\n3,}"),
            "x: not valid JSON: line 2, column 3: unexpected '}'; expected string literal");
  EXPECT_EQ(said(""), "x: not valid JSON: it is empty");
  EXPECT_EQ(said(" \n"), "x: not valid JSON: it is empty");
  EXPECT_EQ(said("1e999"), "x: not valid JSON: number overflow parsing '1e999'");
  // The last token is quoted, however long it is.
  EXPECT_LT(said('"' + std::string(10'000, 'a')).size(), 500u);
}

}  // namespace
}  // namespace jige
