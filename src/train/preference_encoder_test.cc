#include "train/preference_encoder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "train/test_support.h"

namespace jige::train {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

class PreferenceEncoderTest : public testing::Test {
 protected:
  void SetUp() override { write_test_tokenizer(folder_.file("tokenizer")); }

  Result<EncodedPart> encode(const std::string& line, EncoderOptions options = {}) {
    if (options.pair_context == 0) options.pair_context = 200;
    const auto tokenizer = load_test_tokenizer(folder_.file("tokenizer"));
    const auto encoder = DocumentEncoder::create(tokenizer, options);
    EXPECT_TRUE(encoder);
    return encoder->encode(Record{.text = line, .json = true, .line = 7}, "pairs.jsonl");
  }
  std::string error_of(const std::string& line, EncoderOptions options = {}) {
    const auto pair = encode(line, options);
    return pair ? "none" : pair.error().message;
  }
  // One document of a pair as text, with what is learned in brackets.
  std::string shown(const EncodedPart& pair, bool rejected) {
    const auto tokenizer = load_test_tokenizer(folder_.file("tokenizer"));
    std::string text;
    uint8_t before = 0;
    const size_t end = rejected ? pair.ids.size() : pair.second_begin;
    for (size_t i = rejected ? pair.second_begin : 0; i < end; ++i) {
      if (pair.learned[i] != before) text += before == 0 ? "[" : "]";
      before = pair.learned[i];
      text += *tokenizer.decode(std::vector<int32_t>{pair.ids[i]}, {.skip_special = false});
    }
    return text + (before != 0 ? "]" : "");
  }

  TestFolder folder_;
};

TEST_F(PreferenceEncoderTest, MakesTwoDocumentsOfTexts) {
  const auto pair = encode(R"({"prompt": "ab", "chosen": "c", "rejected": "de"})");
  ASSERT_TRUE(pair) << pair.error().message;
  EXPECT_EQ(shown(*pair, false), "<|bos|>ab[c<|eos|>]");
  EXPECT_EQ(shown(*pair, true), "<|bos|>ab[de<|eos|>]");
}

TEST_F(PreferenceEncoderTest, MakesTheTokensThatCompletionsHave) {
  const auto pair = encode(R"({"prompt": "ab", "chosen": "c", "rejected": "de"})");
  const auto tokenizer = load_test_tokenizer(folder_.file("tokenizer"));
  const auto encoder = DocumentEncoder::create(tokenizer, {});
  const Record record{.text = R"({"prompt": "ab", "completion": "c"})", .json = true};
  const auto completion = encoder->encode(record, "a.jsonl");
  ASSERT_TRUE(pair && completion);
  EXPECT_EQ(completion->second_begin, 0u);
  ASSERT_EQ(pair->second_begin, completion->ids.size());
  EXPECT_TRUE(std::equal(completion->ids.begin(), completion->ids.end(), pair->ids.begin()));
  EXPECT_TRUE(
      std::equal(completion->learned.begin(), completion->learned.end(), pair->learned.begin()));
}

TEST_F(PreferenceEncoderTest, ReadsChatsWithAPromptAndWholeConversationsAlike) {
  const auto apart = encode(R"({"prompt": [{"role": "user", "content": "q"}],
    "chosen": [{"role": "assistant", "content": "yes"}],
    "rejected": [{"role": "assistant", "content": "no"}]})");
  const auto whole = encode(R"({
    "chosen": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "yes"}],
    "rejected": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "no"}]})");
  ASSERT_TRUE(apart) << apart.error().message;
  ASSERT_TRUE(whole) << whole.error().message;
  EXPECT_EQ(shown(*apart, false), "<|user|>q<|assistant|>[yes<|eos|>]");
  EXPECT_EQ(shown(*apart, true), "<|user|>q<|assistant|>[no<|eos|>]");
  EXPECT_EQ(apart->ids, whole->ids);
  EXPECT_EQ(apart->learned, whole->learned);
}

TEST_F(PreferenceEncoderTest, LearnsNoAnswerThatBothConversationsBeginWith) {
  const auto pair = encode(R"({
    "prompt": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"},
               {"role": "user", "content": "r"}],
    "chosen": [{"role": "assistant", "content": "bcd"}],
    "rejected": [{"role": "assistant", "content": "bc"}]})");
  ASSERT_TRUE(pair) << pair.error().message;
  const std::string before = "<|user|>q<|assistant|>a<|eos|><|user|>r<|assistant|>";
  EXPECT_EQ(shown(*pair, false), before + "[bcd<|eos|>]");
  EXPECT_EQ(shown(*pair, true), before + "[bc<|eos|>]");
}

TEST_F(PreferenceEncoderTest, NamesFileLineAndFieldOfWhatIsWrong) {
  const struct {
    const char* line;
    const char* message;
  } cases[] = {
      {R"({"prompt": "a", "chosen": "b"})", "field \"rejected\" is missing"},
      {R"({"prompt": "a", "rejected": "b"})", "field \"chosen\" is missing"},
      {R"({"chosen": "a", "rejected": "b"})", "field \"prompt\" is missing"},
      {R"({"prompt": "a", "chosen": "b", "rejected": null})", "field \"rejected\" is missing"},
      {R"({"prompt": "a", "chosen": 1, "rejected": "b"})",
       "field \"chosen\" is neither a text nor a list"},
      {R"({"prompt": "a", "chosen": "", "rejected": "b"})", "field \"chosen\" is empty"},
      {R"({"prompt": "a", "chosen": "b", "rejected": " \n"})", "field \"rejected\" is empty"},
      {R"({"prompt": "a", "chosen": "b", "rejected": []})", "field \"rejected\" is empty"},
      {R"({"prompt": "a", "chosen": "b", "rejected": "b"})",
       "fields \"chosen\" and \"rejected\" are the same"},
      {R"({"prompt": "a", "chosen": "b", "rejected": [{"role": "assistant", "content": "c"}]})",
       "one of \"chosen\" and \"rejected\" is a text"},
      {R"({"prompt": ["a"], "chosen": "b", "rejected": "c"})", "field \"prompt\" must be a text"},
      {R"({"prompt": "a", "chosen": [{"role": "assistant", "content": "b"}],
           "rejected": [{"role": "assistant", "content": "c"}]})",
       "field \"prompt\" must be a list of messages"},
      {R"({"chosen": [{"role": "user", "content": "b"}],
           "rejected": [{"role": "assistant", "content": "c"}]})",
       "field \"chosen\" has nothing to be learned"},
      {R"({"chosen": [{"role": "assistant", "content": "b"}], "rejected": [1]})",
       "field \"rejected\": messages[0] is not an object"},
      {R"({"messages": []})", "field \"chosen\" is missing"},
      {R"([])", "is not a JSON object"},
  };
  for (const auto& one : cases) {
    const std::string error = error_of(one.line);
    EXPECT_THAT(error, StartsWith("pairs.jsonl:7: ")) << one.line;
    EXPECT_THAT(error, HasSubstr(one.message)) << one.line;
  }
}

TEST_F(PreferenceEncoderTest, RefusesAnAnswerThatIsLongerThanTheContext) {
  const std::string line = R"({"prompt": "ab", "chosen": "c", "rejected": "defg"})";
  EXPECT_TRUE(encode(line, {.pair_context = 7}));
  EXPECT_THAT(error_of(line, {.pair_context = 6}),
              HasSubstr("pairs.jsonl:7: field \"rejected\" with its prompt has 8 tokens, more than "
                        "--context of 6 allows"));
  EXPECT_THAT(
      error_of(R"({"prompt": "", "chosen": "aaaaaaa", "rejected": "b"})", {.pair_context = 6}),
      HasSubstr("field \"chosen\" with its prompt has 9 tokens"));
}

}  // namespace
}  // namespace jige::train
