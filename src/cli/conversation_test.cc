#include "cli/conversation.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/file.h"
#include "cli/chat_defaults.h"
#include "cli/tokenizer_training.h"
#include "text/chat_encode.h"

namespace jige::cli {
namespace {

// A tokenizer trained on one line of JSONL (with the chat format) or of text (without).
class ConversationTest : public ::testing::Test {
 protected:
  ConversationTest() {
    std::string pattern = temporary_pattern("/tmp/jige-conversation-");
    folder_ = mkdtemp(pattern.data());
  }
  ~ConversationTest() override {
    std::error_code error;
    std::filesystem::remove_all(folder_, error);
  }

  text::Tokenizer train(const std::string& name, const std::string& content) {
    EXPECT_TRUE(write_file_atomic(folder_ + "/" + name, content));
    const auto trained = train_tokenizer({.files = {folder_ + "/" + name},
                                          .folder = folder_ + "/tok",
                                          .vocab_size = 300,
                                          .quiet = true});
    EXPECT_TRUE(trained) << trained.error().message;
    auto tokenizer = text::Tokenizer::load(folder_ + "/tok");
    EXPECT_TRUE(tokenizer) << tokenizer.error().message;
    return *tokenizer;
  }
  text::Tokenizer chat_tokenizer() {
    return train("a.jsonl",
                 "{\"messages\": [{\"role\": \"user\", \"content\": \"hello hello there\"}, "
                 "{\"role\": \"assistant\", \"content\": \"hello there\"}]}\n");
  }

  std::string folder_;
};

std::string text_of(const text::Tokenizer& tokenizer, const std::vector<int32_t>& ids) {
  return *tokenizer.decode(ids, {});
}

TEST_F(ConversationTest, UsesTheTemplateOfTheFolder) {
  const text::Tokenizer tokenizer = chat_tokenizer();
  Conversation conversation = *Conversation::create(tokenizer, "here");
  ASSERT_TRUE(conversation.has_template());
  EXPECT_TRUE(conversation.stop_strings().empty());
  conversation.set_system("Be brief.");
  conversation.add("user", "hello <|eos|>");
  const auto ids = conversation.prompt(tokenizer, {.context_max = 100, .room = 10});
  ASSERT_TRUE(ids) << ids.error().message;
  EXPECT_EQ(text_of(tokenizer, ids->ids),
            "<|bos|><|system|>Be brief.<|user|>hello <|eos|><|assistant|>");
  // What the user typed is no end-of-text token.
  EXPECT_EQ(std::count(ids->ids.begin(), ids->ids.end(), tokenizer.eos_id()), 0);
}

TEST_F(ConversationTest, TheDefaultTemplateMarksAnswersWithTheirEnd) {
  const text::Tokenizer tokenizer = chat_tokenizer();
  const auto chat = text::ChatTemplate::parse(default_chat_template(), "default");
  ASSERT_TRUE(chat) << chat.error().message;
  const Json messages = *parse_json(
      R"([{"role": "user", "content": "hello"}, {"role": "assistant", "content": "there"}])", "x");
  const auto encoded = text::encode_chat_answers(tokenizer, *chat, messages, {});
  ASSERT_TRUE(encoded) << encoded.error().message;
  std::vector<int32_t> learned;
  for (size_t i = 0; i < encoded->ids.size(); ++i) {
    if (encoded->answer[i]) learned.push_back(encoded->ids[i]);
  }
  EXPECT_EQ(text_of(tokenizer, learned), "there<|eos|>");
}

TEST_F(ConversationTest, LeavesTheOldestExchangeOutAndKeepsTheSystemMessage) {
  const text::Tokenizer tokenizer = chat_tokenizer();
  Conversation conversation = *Conversation::create(tokenizer, "here");
  conversation.set_system("S");
  for (const char* word : {"one", "two", "three"}) {
    conversation.add("user", word);
    if (std::string(word) != "three") conversation.add("assistant", "hello");
  }
  const auto whole = conversation.prompt(tokenizer, {.context_max = 1000, .room = 10});
  ASSERT_TRUE(whole);
  EXPECT_EQ(conversation.dropped_count(), 0);
  const auto count = static_cast<int64_t>(whole->ids.size());
  const auto ids = conversation.prompt(tokenizer, {.context_max = count + 9, .room = 10});
  ASSERT_TRUE(ids) << ids.error().message;
  EXPECT_EQ(conversation.dropped_count(), 2);
  EXPECT_EQ(text_of(tokenizer, ids->ids),
            "<|bos|><|system|>S<|user|>two<|assistant|>hello<|eos|><|user|>three<|assistant|>");
  // The last message stays as long as it fits at all.
  const auto last = conversation.prompt(tokenizer, {.context_max = 14, .room = 10});
  ASSERT_TRUE(last) << last.error().message;
  EXPECT_EQ(conversation.messages().size(), 2u);
  const auto none = conversation.prompt(tokenizer, {.context_max = 5, .room = 1});
  ASSERT_FALSE(none);
  EXPECT_TRUE(none.error().message.ends_with("shorten it")) << none.error().message;
  const auto more =
      conversation.prompt(tokenizer, {.context_max = 5, .room = 1, .model_context_max = 64});
  EXPECT_NE(more.error().message.find("a longer --context, 64 at most"), std::string::npos);
}

TEST_F(ConversationTest, AMessageTooLongTakesNothingWithIt) {
  const text::Tokenizer tokenizer = chat_tokenizer();
  Conversation conversation = *Conversation::create(tokenizer, "here");
  conversation.add("user", "one");
  conversation.add("assistant", "hello");
  const auto before = conversation.prompt(tokenizer, {.context_max = 40, .room = 10});
  ASSERT_TRUE(before) << before.error().message;
  conversation.add("user", std::string(200, 'x'));
  EXPECT_FALSE(conversation.prompt(tokenizer, {.context_max = 40, .room = 10}));
  EXPECT_EQ(conversation.dropped_count(), 0);
  conversation.take_back();
  const auto after = conversation.prompt(tokenizer, {.context_max = 40, .room = 10});
  ASSERT_TRUE(after);
  EXPECT_EQ(after->ids, before->ids);
}

TEST_F(ConversationTest, ResetKeepsTheSystemMessage) {
  Conversation conversation = *Conversation::create(chat_tokenizer(), "here");
  conversation.set_system("S");
  conversation.add("user", "x");
  conversation.reset();
  ASSERT_EQ(conversation.messages().size(), 1u);
  conversation.set_system("");
  EXPECT_TRUE(conversation.messages().empty());
}

TEST_F(ConversationTest, KeepsReasoningApartForTemplatesThatKnowOfIt) {
  text::Tokenizer tokenizer = chat_tokenizer();
  Conversation plain = *Conversation::create(tokenizer, "here");
  plain.add("user", "x");
  const auto asked = plain.prompt(tokenizer, {.context_max = 100, .room = 10});
  EXPECT_EQ(plain.reasoning_start(tokenizer, asked->ids), text::ReasoningStart::kNone);
  const Conversation thinking = *Conversation::create(tokenizer, "here", {.format = "think"});
  EXPECT_EQ(thinking.reasoning_start(tokenizer, asked->ids), text::ReasoningStart::kMayOpen);

  EXPECT_TRUE(write_file_atomic(
      folder_ + "/tok/chat_template.jinja",
      "{% for m in messages %}<{{ m.role }}>{% if m.reasoning_content and loop.last %}"
      "({{ m.reasoning_content }}){% endif %}{{ m.content }}{% endfor %}"
      "{% if add_generation_prompt %}<assistant><think>\n{% endif %}"));
  tokenizer = *text::Tokenizer::load(folder_ + "/tok");
  Conversation conversation = *Conversation::create(tokenizer, "here");
  conversation.add("user", "x");
  conversation.add("assistant", "b", "a");
  EXPECT_EQ(conversation.to_json()["messages"][1]["reasoning_content"], "a");
  EXPECT_FALSE(conversation.to_json()["messages"][0].contains("reasoning_content"));
  conversation.add("user", "y");
  const auto ids = conversation.prompt(tokenizer, {.context_max = 100, .room = 10});
  ASSERT_TRUE(ids) << ids.error().message;
  EXPECT_EQ(text_of(tokenizer, ids->ids), "<user>x<assistant>b<user>y<assistant><think>\n");
  EXPECT_EQ(conversation.reasoning_start(tokenizer, ids->ids), text::ReasoningStart::kOpened);
  const Conversation unparted = *Conversation::create(tokenizer, "here", {.format = "off"});
  EXPECT_EQ(unparted.reasoning_start(tokenizer, ids->ids), text::ReasoningStart::kNone);
}

TEST_F(ConversationTest, SaysThatItIsTheTemplateThatIsWrong) {
  chat_tokenizer();
  const auto created = [&](const std::string& source) {
    EXPECT_TRUE(write_file_atomic(folder_ + "/tok/chat_template.jinja", source));
    return Conversation::create(*text::Tokenizer::load(folder_ + "/tok"), "here");
  };
  EXPECT_EQ(created("{% if").error().message, "here: chat template: line 1: a tag does not end");
  Conversation conversation = *created("{{ messages.nobody() }}");
  conversation.add("user", "x");
  const auto ids = conversation.prompt(*text::Tokenizer::load(folder_ + "/tok"),
                                       {.context_max = 100, .room = 10});
  ASSERT_FALSE(ids);
  EXPECT_TRUE(ids.error().message.starts_with("here: chat template: line 1: "))
      << ids.error().message;
}

TEST_F(ConversationTest, WritesATranscriptWithoutATemplate) {
  const text::Tokenizer tokenizer = train("a.txt", "hello there hello there\n");
  Conversation conversation = *Conversation::create(tokenizer, "here");
  ASSERT_FALSE(conversation.has_template());
  EXPECT_EQ(conversation.stop_strings().front(), "\nUser:");
  conversation.set_system("Talk.");
  conversation.add("user", "hi");
  conversation.add("assistant", "ho");
  conversation.add("user", "ha");
  const auto ids = conversation.prompt(tokenizer, {.context_max = 200, .room = 10});
  ASSERT_TRUE(ids) << ids.error().message;
  EXPECT_EQ(text_of(tokenizer, ids->ids),
            "<|bos|>Talk.\n\nUser: hi\nAssistant: ho\nUser: ha\nAssistant:");
}

// A reader of images of 4 x 4 pixels, whose tokens are one row and an end: ids and the first pixel.
struct PictureReader {
  PictureReader(const text::Tokenizer& tokenizer, int64_t context_max)
      : config{.patch_size = 2,
               .merge = 2,
               .text_width = 1,
               .width_max = 4,
               .height_max = 4,
               .placeholder_id = *tokenizer.token_to_id("<|system|>"),
               .break_id = 1,
               .end_id = *tokenizer.token_to_id("<|eos|>")},
        prompts(config,
                [](const images::Image& image, const GoOn&) -> Result<std::vector<float>> {
                  return std::vector<float>{static_cast<float>(image.rgb[0])};
                },
                {.vocab_size = 1000, .context_max = context_max}) {}
  formats::ImageConfig config;
  serve::ImagePrompts prompts;
};

images::Image picture_of(uint8_t colour) { return {4, 4, std::vector<uint8_t>(3 * 4 * 4, colour)}; }

std::vector<float> first_pixels(const serve::ImagePrompt& prompt) {
  std::vector<float> pixels;
  for (const auto& rows : prompt.given) pixels.push_back(rows->values[0]);
  return pixels;
}

TEST_F(ConversationTest, ImagesStandBeforeTheTextOfTheirMessageAndGoWithIt) {
  chat_tokenizer();
  EXPECT_TRUE(write_file_atomic(
      folder_ + "/tok/chat_template.jinja",
      "{% for m in messages %}<|user|>{% if m.content is string %}{{ m.content }}{% else %}"
      "{% for part in m.content %}{% if part.type == 'image' %}<|system|>{% else %}"
      "{{ part.text }}{% endif %}{% endfor %}{% endif %}{% endfor %}"));
  const text::Tokenizer tokenizer = *text::Tokenizer::load(folder_ + "/tok");
  Conversation conversation = *Conversation::create(tokenizer, "here");
  PictureReader reader(tokenizer, 40);
  conversation.read_images(reader.prompts);
  conversation.add("a", {picture_of(1), picture_of(2)}, {"1.png", "2.png"});
  conversation.add("assistant", "b");
  conversation.add("c", {picture_of(3)}, {"3.png"});
  const auto prompt = conversation.prompt(tokenizer, {.context_max = 40, .room = 10});
  ASSERT_TRUE(prompt) << prompt.error().message;
  EXPECT_EQ(first_pixels(*prompt), (std::vector<float>{1, 2, 3}));
  EXPECT_EQ(std::vector<int32_t>(prompt->ids.begin() + 1, prompt->ids.begin() + 5),
            (std::vector<int32_t>{1000, reader.config.end_id, 1001, reader.config.end_id}));
  const Json first = conversation.to_json()["messages"][0];
  EXPECT_EQ(dump_json(first["content"]),
            R"([{"type":"image","image":"1.png"},{"type":"image","image":"2.png"},)"
            R"({"type":"text","text":"a"}])");

  // A message that is taken back has no images either.
  conversation.add("assistant", "d");
  conversation.add("e", {picture_of(4)}, {"4.png"});
  conversation.take_back();
  conversation.add("f", {picture_of(5)}, {"5.png"});
  const auto longer = conversation.prompt(tokenizer, {.context_max = 60, .room = 10});
  EXPECT_EQ(first_pixels(*longer), (std::vector<float>{1, 2, 3, 5}));

  // Tokens of images count: of what is dropped the images go, too, and all stay where nothing fits.
  const auto count = std::ssize(longer->ids);
  EXPECT_FALSE(conversation.prompt(tokenizer, {.context_max = 2, .room = 1}));
  const auto shorter = conversation.prompt(tokenizer, {.context_max = count + 9, .room = 10});
  ASSERT_TRUE(shorter) << shorter.error().message;
  EXPECT_EQ(conversation.dropped_count(), 2);
  EXPECT_EQ(first_pixels(*shorter), (std::vector<float>{3, 5}));
  EXPECT_EQ(conversation.to_json()["messages"][0]["content"][0]["image"], "3.png");
  conversation.reset();
  conversation.add("g", {picture_of(6)}, {"6.png"});
  const auto anew = conversation.prompt(tokenizer, {.context_max = 60, .room = 10});
  EXPECT_EQ(first_pixels(*anew), std::vector<float>{6});
}

}  // namespace
}  // namespace jige::cli
