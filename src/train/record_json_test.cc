#include "train/record_json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/rng.h"
#include "base/test_fuzz_rounds.h"

namespace jige::train {
namespace {

using ::testing::HasSubstr;

std::string read(const std::string& line) {
  const auto object = read_json_record(line, "a.jsonl:3");
  return object ? dump_json(*object) : object.error().message;
}

TEST(RecordJson, BringsConversationsToMessages) {
  EXPECT_EQ(read(R"({"id":1,"conversations":[{"from":"human","value":"Hi"},)"
                 R"({"from":"gpt","value":"Ho"},{"from":"user","value":"x"},)"
                 R"({"from":"assistant","value":""}]})"),
            R"({"id":1,"messages":[{"role":"user","content":"Hi"},)"
            R"({"role":"assistant","content":"Ho"},{"role":"user","content":"x"},)"
            R"({"role":"assistant","content":""}]})");
  EXPECT_EQ(read(R"({"system":"Be kind.","conversations":[{"from":"human","value":"Hi"}]})"),
            R"({"system":"Be kind.","messages":[{"role":"system","content":"Be kind."},)"
            R"({"role":"user","content":"Hi"}]})");
  EXPECT_EQ(read(R"({"conversations":[{"from":"system","value":"a"}],"system":null})"),
            R"({"system":null,"messages":[{"role":"system","content":"a"}]})");
  const std::string roles = R"({"messages":[{"role":"user","content":"Hi"}]})";
  EXPECT_EQ(read(R"({"conversations":[{"role":"user","content":"Hi"}]})"), roles);
  EXPECT_EQ(read(roles), roles);
  const std::string both = R"({"conversations":3,"messages":[]})";
  EXPECT_EQ(read(both), both) << "what Jige's own field says counts";
}

TEST(RecordJson, SaysWhatIsWrongAndHowToRewriteIt) {
  const std::pair<const char*, const char*> cases[] = {
      {R"({"conversations":[]})", "must be a list of {\"from\", \"value\"}"},
      {R"({"conversations":"a"})", "must be a list"},
      {R"({"conversations":[3]})", "conversations[0]: is not an object"},
      {R"({"conversations":[{"from":"human"}]})", "conversations[0]: field \"value\" is missing"},
      {R"({"conversations":[{"value":"a"}]})", "conversations[0]: field \"from\" is missing"},
      {R"({"conversations":[{"from":"human","value":3}]})", "field \"value\" must be a string"},
      {R"({"conversations":[{"from":"observation","value":"a"}]})", "is from \"observation\""},
      {R"({"system":3,"conversations":[{"from":"human","value":"a"}]})", "\"system\""},
      {"{", "`jq -c . FILE`"},
      {"  \"text\": 3,", "not valid JSON"},
      {"[", "`jq -c '.[]' FILE`"},
      {R"([{"role":"user","content":"Hi"}])", "`jq -c '{messages: .}' FILE`"},
      {R"([{"text":"Hi"}])", "`jq -c '.[]' FILE`"},
      {R"("a text alone")", "not a JSON object such as {\"text\": …}"},
  };
  for (const auto& [line, words] : cases) {
    EXPECT_THAT(read(line), HasSubstr(words)) << line;
    EXPECT_THAT(read(line), testing::StartsWith("a.jsonl:3")) << line;
  }
}

TEST(RecordJson, ShowsTheFieldsThatARecordHas) {
  EXPECT_EQ(fields_text(Json{{"instruction", 1}, {"out\"put", 2}}), R"("instruction", "out\"put")");
  EXPECT_EQ(fields_text(Json::object()), "none");
  Json many;
  for (int i = 0; i < 20; ++i) many[std::string(200, 'a') + std::to_string(i)] = i;
  EXPECT_LT(fields_text(many).size(), 500u);
  const std::string said =
      no_known_field(Json{{"instruction", 1}}, "body", "a.jsonl:3").value().message;
  EXPECT_THAT(said, HasSubstr("none of the fields \"body\", \"messages\""));
  EXPECT_THAT(said, HasSubstr("but \"instruction\"; name the one with a text by --text-field"));
}

TEST(RecordJson, SurvivesAnyChangeOfALine) {
  const std::string whole =
      R"({"system":"s","conversations":[{"from":"human","value":"Hi"},{"role":"a"}],"n":[1,{}]})";
  Rng random(7);
  for (uint64_t i = 0; i < fuzz_rounds(20'000); ++i) {
    std::string line = whole;
    for (uint64_t changes = 1 + random.below(4); changes > 0; --changes) {
      const size_t at = random.below(line.size());
      if (random.below(2) == 0) {
        line[at] = "{}[]\",:0a\\\x80\xef"[random.below(12)];
      } else {
        line.erase(at, 1 + random.below(9));
      }
      if (line.empty()) line = "x";
    }
    const auto object = read_json_record(line, "where");
    if (!object) {
      ASSERT_EQ(object.error().message.find("where: "), 0u) << object.error().message;
      continue;
    }
    ASSERT_TRUE(object->is_object());
    ASSERT_FALSE(object->contains("conversations") && !object->contains("messages")) << line;
  }
}

}  // namespace
}  // namespace jige::train
