#include "train/document_encoder.h"

#include <gtest/gtest.h>

#include "base/file.h"
#include "train/test_support.h"

namespace jige::train {
namespace {

class DocumentEncoderTest : public testing::Test {
 protected:
  void SetUp() override { write_test_tokenizer(folder_.file("tokenizer")); }

  Result<EncodedPart> encode(const std::string& line, EncoderOptions options = {}) {
    return encode(Record{.text = line, .json = true, .line = 7}, options);
  }
  Result<EncodedPart> encode(const Record& record, EncoderOptions options = {}) {
    const auto tokenizer = load_test_tokenizer(folder_.file("tokenizer"));
    const auto encoder = DocumentEncoder::create(tokenizer, options);
    EXPECT_TRUE(encoder);
    return encoder->encode(record, "data.jsonl");
  }
  // The text of learned tokens, or of the others.
  std::string text_of(const EncodedPart& part, bool learned) {
    const auto tokenizer = load_test_tokenizer(folder_.file("tokenizer"));
    std::vector<int32_t> ids;
    for (size_t i = 0; i < part.ids.size(); ++i) {
      if ((part.learned.empty() || part.learned[i] != 0) == learned) ids.push_back(part.ids[i]);
    }
    return *tokenizer.decode(ids, {});
  }

  TestFolder folder_;
};

TEST_F(DocumentEncoderTest, PutsTextBetweenBeginAndEndTokens) {
  const auto part = encode(R"({"text": "hi"})");
  ASSERT_TRUE(part) << part.error().message;
  EXPECT_EQ(part->ids.front(), kTestBos);
  EXPECT_EQ(part->ids.back(), kTestEos);
  EXPECT_EQ(part->ids.size(), 4u);
  EXPECT_TRUE(part->learned.empty());
}

TEST_F(DocumentEncoderTest, PutsThemOnlyAtTheEndsOfPieces) {
  const auto first = encode(Record{.text = "a", .ends = false});
  const auto middle = encode(Record{.text = "b", .begins = false, .ends = false});
  const auto last = encode(Record{.text = "", .begins = false});
  EXPECT_EQ(first->ids.size(), 2u);
  EXPECT_EQ(first->ids.front(), kTestBos);
  EXPECT_EQ(middle->ids.size(), 1u);
  EXPECT_EQ(last->ids, std::vector<int32_t>{kTestEos});
}

TEST_F(DocumentEncoderTest, LeavesTheEndTokenOutWhereAsked) {
  EXPECT_EQ(encode(R"({"text": "hi"})", {.append_eos = false})->ids.size(), 3u);
}

TEST_F(DocumentEncoderTest, OfSeveralKindsTakesTheTextFieldThatWasAskedFor) {
  const std::string line =
      R"({"prompt": "q", "completion": "a", "text": "t", "whole": "qa", "n": 1})";
  EXPECT_EQ(text_of(*encode(line), true), "a<|eos|>");
  EXPECT_EQ(text_of(*encode(line, {.text_field = "whole"}), true), "<|bos|>qa<|eos|>");
  EXPECT_EQ(text_of(*encode(line, {.text_field = "other"}), true), "a<|eos|>");
}

TEST_F(DocumentEncoderTest, ReadsAnotherTextField) {
  EXPECT_EQ(encode(R"({"content": "hi"})", {.text_field = "content"})->ids.size(), 4u);
}

TEST_F(DocumentEncoderTest, LearnsTheCompletionOnly) {
  const auto part = encode(R"({"prompt": "2+2=", "completion": "4"})");
  ASSERT_TRUE(part);
  EXPECT_EQ(text_of(*part, false), "<|bos|>2+2=");
  EXPECT_EQ(text_of(*part, true), "4<|eos|>");
}

TEST_F(DocumentEncoderTest, PutsNoSpaceBetweenPromptAndCompletion) {
  add_prefix_space(folder_.file("tokenizer"));
  const auto part = encode(R"({"prompt": "What? ", "completion": "four"})");
  ASSERT_TRUE(part);
  EXPECT_EQ(text_of(*part, false), "<|bos|> What ? ");
  EXPECT_EQ(text_of(*part, true), "four<|eos|>");
  // Without a prompt it is the beginning of a text.
  const auto alone = encode(R"({"prompt": "", "completion": "4"})");
  ASSERT_TRUE(alone);
  EXPECT_EQ(text_of(*alone, true), " 4<|eos|>");
}

TEST_F(DocumentEncoderTest, LearnsTheAnswersOfAConversationOnly) {
  const auto part = encode(
      R"({"messages": [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "yo"},)"
      R"({"role": "user", "content": "and?"}, {"role": "assistant", "content": "so"}]})");
  ASSERT_TRUE(part) << part.error().message;
  EXPECT_EQ(text_of(*part, true), "yo<|eos|>so<|eos|>");
  EXPECT_EQ(text_of(*part, false), "<|user|>hi<|assistant|><|user|>and?<|assistant|>");
  EXPECT_EQ(std::count(part->learned.begin(), part->learned.end(), 1), 6);
}

TEST_F(DocumentEncoderTest, ReadsConversationsAsMessages) {
  const auto given = encode(
      R"({"conversations": [{"from": "human", "value": "a"}, {"from": "gpt", "value": "b"}]})");
  const auto messages = encode(R"({"messages": [{"role": "user", "content": "a"},
                                                {"role": "assistant", "content": "b"}]})");
  ASSERT_TRUE(given) << given.error().message;
  ASSERT_TRUE(messages);
  EXPECT_EQ(given->ids, messages->ids);
  EXPECT_EQ(given->learned, messages->learned);
}

TEST_F(DocumentEncoderTest, NamesTheMessageThatATemplateHasNoTextFor) {
  ASSERT_TRUE(write_file_atomic(folder_.file("tokenizer/chat_template.jinja"),
                                "{% for m in messages %}{{ '<' + m['content'] }}{% endfor %}"));
  const auto part = encode(R"({"messages": [{"role": "user", "content": "a"},
      {"role": "assistant", "content": null, "tool_calls": []}]})");
  ASSERT_FALSE(part);
  EXPECT_NE(part.error().message.find("messages[1] has calls of tools and no \"content\""),
            std::string::npos)
      << part.error().message;
}

TEST_F(DocumentEncoderTest, ReadsAContentOfTextPartsAsOneText) {
  const auto parts =
      encode(R"({"messages": [{"role": "user", "content": [{"type": "text", "text": "h"},)"
             R"({"type": "text", "text": "i"}]}, {"role": "assistant", "content":)"
             R"([{"type": "text", "text": "yo"}]}]})");
  ASSERT_TRUE(parts) << parts.error().message;
  const auto plain = encode(R"({"messages": [{"role": "user", "content": "hi"},)"
                            R"({"role": "assistant", "content": "yo"}]})");
  ASSERT_TRUE(plain);
  EXPECT_EQ(parts->ids, plain->ids);
  EXPECT_EQ(parts->learned, plain->learned);
}

TEST_F(DocumentEncoderTest, TakesSpecialTokensInTextsAsText) {
  const auto part = encode(R"({"text": "<|eos|>"})");
  ASSERT_TRUE(part);
  EXPECT_EQ(part->ids.size(), 2 + std::string("<|eos|>").size());
}

TEST_F(DocumentEncoderTest, NamesFileLineAndFieldOfWhatIsWrong) {
  const std::pair<const char*, const char*> cases[] = {
      {R"({"text": 3})", "text"},
      {R"({"txt": "a"})", "\"text\""},
      {R"([1])", "object"},
      {R"({"text": "a")", "data.jsonl:7"},
      {R"({"text": null})", "field \"text\" is null"},
      {R"({"instruction": "a", "output": "b"})", "but \"instruction\", \"output\"; name"},
      {"{", "`jq -c . FILE`"},
      {R"({"prompt": "a"})", "\"completion\" is missing; the record has \"prompt\""},
      {R"({"prompt": "a", "completion": null})", "\"completion\" is null"},
      {R"({"completion": "a"})", "\"prompt\" is missing; the record has \"completion\""},
      {R"({"conversations": [{"from": "moon", "value": "a"}]})", "from \"moon\""},
      {R"({"messages": []})", "messages"},
      {R"({"messages": "a"})", "messages"},
      {R"({"messages": [3]})", "messages[0]"},
      {R"({"messages": [{"role": "user"}]})", "content"},
      {R"({"messages": [{"role": "user", "content": null}]})", "content"},
      {R"({"messages": [{"role": "user", "content": 3}]})", "content"},
      {R"({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]})",
       "messages[0].content[0]: is of type \"image_url\""},
      {R"({"messages": [{"content": "a"}]})", "role"},
      {"{\"text\": \"\xFF\"}", "data.jsonl:7"},
  };
  for (const auto& [line, word] : cases) {
    const auto part = encode(line);
    ASSERT_FALSE(part) << line;
    EXPECT_EQ(part.error().message.find("data.jsonl:7"), 0u) << part.error().message;
    EXPECT_NE(part.error().message.find(word), std::string::npos) << part.error().message;
  }
}

TEST_F(DocumentEncoderTest, AsksForAChatTemplateWhereThereIsNone) {
  write_test_tokenizer(folder_.file("tokenizer"), false);
  const auto part = encode(R"({"messages": [{"role": "user", "content": "hi"}]})");
  ASSERT_FALSE(part);
  EXPECT_NE(part.error().message.find("chat_template.jinja"), std::string::npos);
}

// Nothing would read them.
TEST_F(DocumentEncoderTest, RefusesImagesBesidePromptsAndPairs) {
  const std::string prompt = R"({"images": ["a.png"], "prompt": "a", )";
  for (const auto& [line, context] : {std::pair{prompt + R"("completion": "b"})", 0},
                                      {prompt + R"("chosen": "b", "rejected": "c"})", 64}}) {
    const auto part = encode(line, {.pair_context = context, .no_images = "none here"});
    ASSERT_FALSE(part) << line;
    EXPECT_EQ(part.error().code, Code::kUnsupported);
    EXPECT_EQ(part.error().message,
              "data.jsonl:7: has \"images\" beside its texts; none here; leave \"images\" out to "
              "learn from the texts alone");
  }
  const auto tokenizer = load_test_tokenizer(folder_.file("tokenizer"));
  const auto encoder = DocumentEncoder::create(tokenizer, {.no_images = "none here"});
  ASSERT_TRUE(encoder);
  const auto asked = encoder->encode_prompt(Json{{"image", "a.png"}, {"prompt", "a"}}, "data:7");
  ASSERT_FALSE(asked);
  EXPECT_NE(asked.error().message.find("data:7: has \"image\" beside its texts; none here"),
            std::string::npos)
      << asked.error().message;
  for (const std::string none : {R"("images": [])", R"("image": null)", R"("image": "")"}) {
    EXPECT_TRUE(encode("{" + none + R"(, "prompt": "a", "completion": "b"})")) << none;
  }
  // What a text alone comes with is not asked for where images are not read.
  EXPECT_TRUE(encode(R"({"image": "a.png", "text": "b"})"));
}

TEST_F(DocumentEncoderTest, SaysWhatPairsOfAnswersAreFor) {
  const auto part = encode(R"({"prompt": "a", "chosen": "b", "rejected": "c"})");
  ASSERT_FALSE(part);
  EXPECT_NE(part.error().message.find("add --dpo to learn from pairs"), std::string::npos)
      << part.error().message;
}

}  // namespace
}  // namespace jige::train
