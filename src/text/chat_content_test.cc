#include "text/chat_content.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace jige::text {
namespace {

Result<std::string> text_of(const char* json) {
  return chat_content_text(*parse_json(json, "test"), "here");
}

TEST(ChatContent, IsATextOrTheTextsOfItsParts) {
  EXPECT_EQ(*text_of(R"("plain")"), "plain");
  EXPECT_EQ(*text_of("[]"), "");
  EXPECT_EQ(*text_of(R"([{"type": "text", "text": "one "}, {"type": "text", "text": "two"}])"),
            "one two");
}

TEST(ChatContent, NamesThePartThatIsNoText) {
  const std::pair<const char*, const char*> cases[] = {
      {"null", "here: field \"content\" must be a text or a list of parts, found null"},
      {"3", "found number"},
      {R"([{"type": "text", "text": "a"}, {"type": "image_url", "image_url": "x"}])",
       "here.content[1]: is of type \"image_url\""},
      {R"(["a"])", "here.content[0]"},
      {R"([{"text": "a"}])", "\"type\""},
      {R"([{"type": "text"}])", "\"text\""},
      {R"([{"type": "text", "text": 1}])", "\"text\""},
  };
  for (const auto& [json, words] : cases) {
    const auto text = text_of(json);
    ASSERT_FALSE(text) << json;
    EXPECT_THAT(text.error().message, ::testing::HasSubstr(words));
    EXPECT_THAT(text.error().message, ::testing::StartsWith("here"));
  }
}

}  // namespace
}  // namespace jige::text
