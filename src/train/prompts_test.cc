// Prompts as data: their tokens, what is kept of them, and which are refused.

#include "train/prompts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "train/document_encoder.h"
#include "train/test_support.h"

namespace jige::train {
namespace {

using testing::AllOf;
using testing::HasSubstr;

class PromptsTest : public testing::Test {
 protected:
  void SetUp() override {
    write_test_tokenizer(folder_.file("tokenizer"));
    tokenizer_ = load_test_tokenizer(folder_.file("tokenizer"));
  }
  Result<PromptSet> read(const std::string& lines, PromptOptions options = {}) {
    if (options.tokens_max == 0) options.tokens_max = 20;
    PromptSet set;
    JIGE_DO(add_prompts(folder_.write("p.jsonl", lines), *tokenizer_, options, set));
    return set;
  }
  std::string error_of(const std::string& lines, PromptOptions options = {}) {
    const auto set = read(lines, options);
    EXPECT_FALSE(set) << lines;
    return set ? "" : set.error().message;
  }

  const TestFolder folder_;
  std::optional<text::Tokenizer> tokenizer_;
};

TEST_F(PromptsTest, HaveTheTokensThatDocumentsBeginWith) {
  const auto set = read(R"({"prompt": "2 + 2 is ", "answer": 4, "level": [1]})"
                        "\n\n"
                        R"({"messages": [{"role": "user", "content": "Hi"}], "answer": "Ho"})"
                        "\n",
                        {.rule = RewardRule::kExact});
  ASSERT_TRUE(set) << set.error().message;
  ASSERT_EQ(set->prompts.size(), 2u);
  const auto encoder = DocumentEncoder::create(*tokenizer_, {});
  const auto begins = [&](const Prompt& prompt, const Json& document) {
    const auto part = encoder->encode_object(document, "x");
    ASSERT_TRUE(part);
    size_t learned = 0;
    while (part->learned[learned] == 0) ++learned;
    EXPECT_EQ(prompt.ids,
              std::vector<int32_t>(part->ids.begin(),
                                   part->ids.begin() + static_cast<ptrdiff_t>(learned)));
  };
  begins(set->prompts[0], {{"prompt", "2 + 2 is "}, {"completion", "4"}});
  begins(set->prompts[1],
         {{"messages",
           {{{"role", "user"}, {"content", "Hi"}}, {{"role", "assistant"}, {"content", "Ho"}}}}});
  EXPECT_EQ(set->prompts[0].answer, "4");
  EXPECT_EQ(set->prompts[1].answer, "Ho");
  EXPECT_FALSE(set->prompts[0].chat);
  EXPECT_TRUE(set->prompts[1].chat);
  EXPECT_THAT(set->prompts[0].record, HasSubstr("\"level\": [1]"));
  EXPECT_GT(set->byte_count(), 0);
}

TEST_F(PromptsTest, AreKnownByLinesAndTokens) {
  const std::string line = R"({"prompt": "a", "answer": "b"})";
  const auto key = read(line)->keys;
  EXPECT_EQ(read(line + "\n")->keys, key);
  EXPECT_NE(read(R"({"prompt": "a", "answer": "c"})")->keys, key);
}

TEST_F(PromptsTest, AreRefusedByFileAndLine) {
  const std::string good = R"({"prompt": "a", "answer": "b"})"
                           "\n";
  const PromptOptions exact{.rule = RewardRule::kExact};
  EXPECT_THAT(error_of(good + R"({"prompt": "a"})", exact),
              AllOf(HasSubstr("p.jsonl:2"), HasSubstr("answer")));
  EXPECT_TRUE(read(good + R"({"prompt": "a"})"));  // a program may need none
  EXPECT_THAT(error_of(good + "{", exact), HasSubstr("p.jsonl:2"));
  EXPECT_THAT(error_of(good + "[1]", exact), HasSubstr("p.jsonl:2: is not a JSON object"));
  EXPECT_THAT(error_of(R"({"answer": "b"})", exact), HasSubstr("prompt"));
  EXPECT_THAT(error_of(R"({"prompt": 3, "answer": "b"})", exact), HasSubstr("prompt"));
  EXPECT_THAT(error_of(R"({"prompt": "a", "answer": ["b"]})", exact), HasSubstr("answer"));
  EXPECT_THAT(error_of(R"({"prompt": "a", "answer": "b"})", {.rule = RewardRule::kNumber}),
              HasSubstr("holds no number"));
  EXPECT_THAT(error_of(R"({"messages": [], "answer": "b"})", exact), HasSubstr("messages"));
  EXPECT_THAT(error_of(R"({"messages": [{"role": "user", "content": "a"},
                           {"role": "assistant", "content": "b"}], "answer": "b"})"),
              HasSubstr("p.jsonl:1"));
  EXPECT_THAT(error_of(R"({"messages": [{"role": "user", "content": "a"}, {"role": "assistant", )"
                       R"("content": "b"}], "answer": "b"})"),
              HasSubstr("ends with an answer"));
  EXPECT_THAT(
      error_of(good + R"({"prompt": "twenty-one characters", "answer": "b"})", exact),
      AllOf(HasSubstr("p.jsonl:2"), HasSubstr("--max-new-tokens"), HasSubstr("--skip-bad")));
  EXPECT_THAT(error_of("\n"), HasSubstr("holds no prompt"));
  PromptSet set;
  const Status text = add_prompts(folder_.write("p.txt", good), *tokenizer_, exact, set);
  ASSERT_FALSE(text);
  EXPECT_EQ(text.error().code, Code::kUnsupported);
}

TEST_F(PromptsTest, AreLeftOutAndCountedWhereBadOnesMayBe) {
  const auto set = read(
      "{\n"
      R"({"prompt": "a", "answer": "b"})"
      "\n3\n",
      {.rule = RewardRule::kExact, .skip_bad = true});
  ASSERT_TRUE(set) << set.error().message;
  EXPECT_EQ(set->prompts.size(), 1u);
  EXPECT_EQ(set->skipped_count, 2);
}

}  // namespace
}  // namespace jige::train
