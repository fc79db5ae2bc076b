#include "train/image_messages.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "train/record_json.h"

namespace jige::train {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

Result<ImageMessages> messages_of(const std::string& json, const std::string& refusal = "") {
  JIGE_TRY(const Json object, read_json_record(json, "here"));
  return read_image_messages(object, refusal, "here");
}

const Json kImage = {{"type", "image"}};

Json text(const std::string& words) { return {{"type", "text"}, {"text", words}}; }

TEST(ImageMessages, AreInPartsOfAContent) {
  const auto messages = messages_of(
      R"({"messages": [{"role": "system", "content": "s"}, {"role": "user", "content": [
          {"type": "image", "image": "a.png"}, {"type": "text", "text": "and"},
          {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA"}},
          {"type": "image", "path": "b.png"}, {"type": "image_url", "image_url": "c.png"}]},
          {"role": "assistant", "content": [{"type": "text", "text": "yes"}]}]})");
  ASSERT_TRUE(messages) << messages.error().message;
  EXPECT_THAT(messages->sources,
              ElementsAre("a.png", "data:image/png;base64,AA", "b.png", "c.png"));
  EXPECT_EQ(messages->places[1], "messages[1].content[2]");
  EXPECT_EQ(messages->messages[0]["content"], "s");
  EXPECT_EQ(messages->messages[1]["content"],
            Json::array({kImage, text("and"), kImage, kImage, kImage}));
  EXPECT_EQ(messages->messages[2]["content"], "yes");
}

TEST(ImageMessages, AreNamedBesideThem) {
  const auto parts = messages_of(
      R"({"images": ["a.png", {"path": "b.png"}], "messages": [{"role": "user", "content": [
          {"type": "image"}, {"type": "text", "text": "x"}, {"type": "image"}]}]})");
  ASSERT_TRUE(parts) << parts.error().message;
  EXPECT_THAT(parts->sources, ElementsAre("a.png", "b.png"));

  const auto marks = messages_of(
      R"({"images": ["a.png", "b.png"], "messages": [{"role": "user",
          "content": "<image>first<image>"}, {"role": "assistant", "content": "yes"}]})");
  ASSERT_TRUE(marks) << marks.error().message;
  EXPECT_THAT(marks->sources, ElementsAre("a.png", "b.png"));
  EXPECT_EQ(marks->messages[0]["content"], Json::array({kImage, text("first"), kImage}));

  const auto front = messages_of(
      R"({"images": ["a.png", "b.png"], "messages": [{"role": "system", "content": "s"},
          {"role": "user", "content": "both?"}]})");
  ASSERT_TRUE(front) << front.error().message;
  EXPECT_EQ(front->messages[1]["content"], Json::array({kImage, kImage, text("both?")}));

  const auto llava = messages_of(
      R"({"image": "a.png", "conversations": [{"from": "human", "value": "<image>\nwhat?"},
          {"from": "gpt", "value": "a cat"}]})");
  ASSERT_TRUE(llava) << llava.error().message;
  EXPECT_EQ(llava->messages[0]["content"], Json::array({kImage, text("\nwhat?")}));
}

// Without images beside it a mark is what a person wrote.
TEST(ImageMessages, LeaveTextsAlone) {
  const auto plain = messages_of(
      R"({"images": [], "messages": [{"role": "user", "content": "an <image> tag"},
          {"role": "assistant", "tool_calls": []}]})");
  ASSERT_TRUE(plain) << plain.error().message;
  EXPECT_THAT(plain->sources, IsEmpty());
  EXPECT_EQ(plain->messages[0]["content"], "an <image> tag");
}

TEST(ImageMessages, SayWhatIsWrong) {
  const std::pair<const char*, const char*> cases[] = {
      {R"({"messages": [{"role": "user", "content": [{"type": "image"}]}]})",
       "here: messages[0].content[0] has a place for an image, and the record names none"},
      {R"({"images": ["a"], "messages": [{"role": "user", "content": "<image><image>"}]})",
       "the record names 1 alone"},
      {R"({"images": ["a", "b"], "messages": [{"role": "user", "content": "<image>"}]})",
       "here: names 2 images beside its messages, and these have places for 1"},
      {R"({"images": ["a"], "messages": [{"role": "system", "content": "s"}]})", "places for 0"},
      {R"({"images": "a b", "messages": [{"role": "user", "content": 3}]})", "content"},
      {R"({"images": [3], "messages": [{"role": "user", "content": "a"}]})",
       "here: images[0]: is no path of a file"},
      {R"({"messages": [{"role": "user", "content": [{"type": "image", "image": 3}]}]})",
       "field \"image\" must be the path of a file or a data: URL, found number"},
      {R"({"messages": [{"role": "assistant", "content": [{"type": "image", "image": "a"}]}]})",
       "here: messages[0]: has an image, and answers with images are not learned"},
      {R"({"messages": [{"role": "user", "content": [{"type": "video", "video": "a"}]}]})",
       "\"video\""},
      {R"({"messages": [3]})", "here: messages[0] is not an object"},
      {R"({"messages": []})", "must be a list"},
  };
  for (const auto& [json, words] : cases) {
    const auto messages = messages_of(json);
    ASSERT_FALSE(messages) << json;
    EXPECT_THAT(messages.error().message, HasSubstr(words)) << json;
  }
}

TEST(ImageMessages, AreRefusedWhereNobodyReadsThem) {
  for (const char* json :
       {R"({"messages": [{"role": "user", "content": [{"type": "image", "image": "a"}]}]})",
        R"({"images": ["a"], "messages": [{"role": "user", "content": "b"}]})"}) {
    const auto messages = messages_of(json, "this model is blind");
    ASSERT_FALSE(messages) << json;
    EXPECT_EQ(messages.error().code, Code::kUnsupported);
    EXPECT_THAT(messages.error().message, HasSubstr("this model is blind"));
  }
  EXPECT_TRUE(
      messages_of(R"({"images": [], "messages": [{"role": "user", "content": "b"}]})", "blind"));
}

}  // namespace
}  // namespace jige::train
