#include "formats/json_file.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "formats/test_support.h"

namespace jige::formats {
namespace {

TEST(JsonFile, ReadsAnObjectInItsOrder) {
  const Result<Json> json = parse_json_object(R"({"b": [1, {"c": null}], "a": true})", "x");
  ASSERT_TRUE(json) << json.error().message;
  EXPECT_EQ(json->begin().key(), "b");
  EXPECT_EQ(json->size(), 2u);
}

TEST(JsonFile, RefusesTopsThatAreNoObject) {
  for (const char* text : {"[1]", "3", "\"a\"", "null", "true"}) {
    EXPECT_FAILS_WITH(parse_json_object(text, "x.json"), Code::kCorrupt, "must be a JSON object");
  }
}

TEST(JsonFile, RefusesNamesGivenTwiceAtAnyDepth) {
  EXPECT_FAILS_WITH(parse_json_object(R"({"a": 1, "a": 2})", "x"), Code::kCorrupt, "appears twice");
  EXPECT_FAILS_WITH(parse_json_object(R"({"k": [{"a": 1, "a": 2}]})", "x"), Code::kCorrupt,
                    "field \"a\"");
  EXPECT_TRUE(parse_json_object(R"({"a": {"a": 1}, "b": {"a": 2}})", "x"));
}

TEST(JsonFile, RefusesDepthMembersNulAndSyntaxErrors) {
  std::string deep;
  for (int i = 0; i < 100; ++i) deep += "{\"a\":";
  EXPECT_FAILS_WITH(parse_json_object(deep, "x"), Code::kCorrupt, "nested deeper");
  std::string wide = "{";
  for (size_t i = 0; i <= kJsonMembersMax; ++i) wide += "\"" + std::to_string(i) + "\":0,";
  wide += "\"a\":0}";
  EXPECT_FAILS_WITH(parse_json_object(wide, "x"), Code::kCorrupt, "members");
  EXPECT_FAILS_WITH(parse_json_object(std::string_view("{}\0{", 4), "x"), Code::kCorrupt, "NUL");
  EXPECT_FAILS_WITH(parse_json_object("{\"a\": }", "x"), Code::kCorrupt, "not valid JSON");
  EXPECT_FAILS_WITH(parse_json_object("{\"a\": 1e999}", "x"), Code::kCorrupt, "not valid JSON");
  EXPECT_FAILS_WITH(parse_json_object("", "x"), Code::kCorrupt, "not valid JSON");
}

TEST(JsonFile, WordsOfPythonThatAreNoJsonBecomeObjects) {
  const std::string python =
      R"({"a": [0.0, Infinity], "b": -Infinity, "NaN": "Infinity \" NaN \\", "c": NaN})";
  const auto json = parse_json_object(json_of_python(python), "text");
  ASSERT_TRUE(json) << json.error().message;
  EXPECT_EQ((*json)["a"][1], (Json{{"__float__", "Infinity"}}));
  EXPECT_EQ((*json)["b"], (Json{{"__float__", "-Infinity"}}));
  EXPECT_EQ((*json)["NaN"], "Infinity \" NaN \\");
  EXPECT_EQ((*json)["c"], (Json{{"__float__", "NaN"}}));
  // What is no JSON stays none.
  for (const char* text : {"{\"a\": Infinite}", "{\"a\": \"", "{\"a\": \"\\", "-"}) {
    EXPECT_FALSE(parse_json_object(json_of_python(text), "text")) << text;
  }
}

TEST(JsonFile, NamesAMissingOrOversizedFile) {
  const ScratchFolder scratch;
  const std::string path = scratch.file("a.json");
  EXPECT_FAILS_WITH(load_json_object(path), Code::kNotFound, path);
  write_or_fail(path, "{\"a\": 1}");
  EXPECT_TRUE(load_json_object(path));
  EXPECT_FAILS_WITH(load_json_object(path, 4), Code::kExhausted, path);
}

}  // namespace
}  // namespace jige::formats
