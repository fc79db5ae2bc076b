// What goes around a pair of texts, in the forms that tokenizer.json has for it.
#include "text/post_processor.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>

namespace jige::text {
namespace {

using FrameIds = std::vector<int32_t>;

Result<PostProcessor> pair_processor(const std::string& text) {
  const Json json = Json::parse(text);
  return PostProcessor::from_json(&json, "test");
}

// A template with these parts of a pair: "[CLS]:0", "$A:0" and so on.
std::string pair_template(const std::string& parts) {
  Json pair = Json::array();
  size_t begin = 0;
  while (begin < parts.size()) {
    const size_t end = std::min(parts.find(' ', begin), parts.size());
    const std::string part = parts.substr(begin, end - begin);
    const std::string name = part.substr(0, part.find(':'));
    const int type = part.back() - '0';
    const bool text = name[0] == '$';
    pair.push_back({{text ? "Sequence" : "SpecialToken",
                     {{"id", text ? name.substr(1) : name}, {"type_id", type}}}});
    begin = end + 1;
  }
  return Json{
      {"type", "TemplateProcessing"},
      {"single", Json::array({{{"Sequence", {{"id", "A"}, {"type_id", 0}}}}})},
      {"pair", pair},
      {"special_tokens", {{"C", {{"id", "C"}, {"ids", {7}}}}, {"S", {{"id", "S"}, {"ids", {8}}}}}}}
      .dump();
}

void expect_frame(const std::string& json, const FrameIds& before, const FrameIds& between,
                  const FrameIds& behind, std::optional<size_t> second_from) {
  const auto made = pair_processor(json);
  ASSERT_TRUE(made.has_value()) << made.error().message;
  ASSERT_TRUE(made->pair.has_value()) << json;
  EXPECT_EQ(made->pair->before, before) << json;
  EXPECT_EQ(made->pair->between, between) << json;
  EXPECT_EQ(made->pair->behind, behind) << json;
  EXPECT_EQ(made->pair->second_from, second_from) << json;
}

TEST(PairFrame, IsReadOfTemplates) {
  expect_frame(pair_template("C:0 $A:0 S:0 $B:1 S:1"), {7}, {8}, {8}, 1);
  expect_frame(pair_template("C:0 $A:0 S:1 S:1 $B:1"), {7}, {8, 8}, {}, 0);
  expect_frame(pair_template("C:0 $A:0 S:0 S:0 $B:0 S:0"), {7}, {8, 8}, {8}, {});
  expect_frame(pair_template("$A:0 $B:1"), {}, {}, {}, 0);
}

TEST(PairFrame, IsReadOfTheProcessorsOfBertAndRoberta) {
  const std::string fields = R"("cls": ["<s>", 7], "sep": ["</s>", 8]})";
  expect_frame(R"({"type": "BertProcessing", )" + fields, {7}, {8}, {8}, 1);
  expect_frame(R"({"type": "RobertaProcessing", )" + fields, {7}, {8, 8}, {8}, {});
  const std::string bytes = R"({"type": "Sequence", "processors": [{"type": "ByteLevel"}, )";
  expect_frame(bytes + R"({"type": "RobertaProcessing", )" + fields + "]}", {7}, {8, 8}, {8}, {});
}

TEST(PairFrame, IsNotThereWhereItCannotSayWhatTheFileSays) {
  const std::string bert = R"({"type": "BertProcessing", "cls": ["a", 7], "sep": ["b", 8]})";
  for (const std::string& json :
       {pair_template("C:0 $B:0 S:0 $A:1"), pair_template("$A:0"), pair_template("$A:0 $B:0 $B:0"),
        pair_template("$A:1 $B:0"), pair_template("$A:0 $B:2"), pair_template("$A:0 $B:0 S:1"),
        pair_template("C:1 $A:1 $B:1"), std::string(R"({"type": "ByteLevel"})"),
        R"({"type": "Sequence", "processors": [)" + bert + "," + bert + "]}"}) {
    const auto made = pair_processor(json);
    ASSERT_TRUE(made.has_value()) << made.error().message;
    EXPECT_FALSE(made->pair.has_value()) << json;
  }
}

TEST(PairFrame, RefusesWhatIsNoTemplate) {
  const auto unknown = pair_processor(pair_template("X:0 $A:0 $B:0"));
  ASSERT_FALSE(unknown.has_value());
  EXPECT_NE(unknown.error().message.find("\"X\" has no ids"), std::string::npos);
  Json json = Json::parse(pair_template("$A:0 $B:0"));
  json["pair"][0] = {{"Other", 1}};
  const auto other = pair_processor(json.dump());
  ASSERT_FALSE(other.has_value());
  EXPECT_EQ(other.error().code, Code::kCorrupt);
}

}  // namespace
}  // namespace jige::text
