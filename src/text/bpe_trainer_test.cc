#include "text/bpe_trainer.h"

#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "base/test_path.h"
#include "text/test_fixtures.h"
#include "text/tokenizer.h"

namespace jige::text {
namespace {

using TrainedMerges = std::vector<std::pair<std::string, std::string>>;

std::string corpus() { return *read_file(fixture_path("trainer/corpus.txt")); }

TrainedBpe train(const std::string& text, BpeTrainerOptions options) {
  BpeTrainer trainer(std::move(options));
  EXPECT_TRUE(trainer.feed(text).has_value());
  auto trained = trainer.train();
  EXPECT_TRUE(trained.has_value()) << trained.error().message;
  return std::move(*trained);
}

TrainedMerges recorded(const std::string& name) {
  const auto json = parse_json(*read_file(fixture_path("trainer/" + name)), name);
  return json->get<TrainedMerges>();
}

TEST(BpeTrainer, LearnsTheMergesThatHuggingFaceLearns) {
  const auto up_to_3 = train(corpus(), {.vocab_size = 800});
  EXPECT_EQ(up_to_3.merges, recorded("up_to_3.json"));
  const auto single = train(corpus(), {.vocab_size = 800, .digits = DigitGroups::kSingle});
  EXPECT_EQ(single.merges, recorded("single.json"));
}

TEST(BpeTrainer, DoesNotDependOnHowTheTextIsFed) {
  const std::string text = corpus();
  BpeTrainer trainer({.vocab_size = 600});
  std::vector<std::string> lines;
  for (size_t from = 0; from < text.size();) {
    const size_t end = std::min(text.find('\n', from), text.size());
    lines.push_back(text.substr(from, end - from));
    from = end + 1;
  }
  BpeTrainer backwards({.vocab_size = 600});
  for (size_t i = 0; i < lines.size(); ++i) {
    ASSERT_TRUE(trainer.feed(lines[i]).has_value());
    ASSERT_TRUE(backwards.feed(lines[lines.size() - 1 - i]).has_value());
  }
  EXPECT_EQ(trainer.train()->merges, backwards.train()->merges);
}

TEST(BpeTrainer, LongTextsAreCountedInSlicesWithTheSameResult) {
  std::string text;
  while (text.size() < (3u << 20)) text += corpus() + "\n  \n";
  EXPECT_EQ(train(text, {.vocab_size = 400}).merges,
            train(corpus() + "\n  \n", {.vocab_size = 400}).merges);
}

TEST(BpeTrainer, MakesExactlyTheVocabularyAskedForWithSpecialTokensLast) {
  const auto trained =
      train(corpus(), {.vocab_size = 500, .special_tokens = {"<|bos|>", "<|eos|>"}});
  EXPECT_EQ(trained.tokens.size(), 500u);
  EXPECT_EQ(trained.merges.size(), 500u - 256 - 2);
  EXPECT_EQ(trained.tokens[498], "<|bos|>");
  EXPECT_EQ(trained.tokens[499], "<|eos|>");
}

TEST(BpeTrainer, StopsWhereTheTextHasNoMorePairs) {
  const auto trained = train("ab ab ab ab", {.vocab_size = 5000});
  EXPECT_LT(trained.tokens.size(), 262u);
  EXPECT_GE(trained.merges.size(), 1u);
}

TEST(BpeTrainer, DoesNotCountSpecialTokensInTheText) {
  std::string text;
  for (int i = 0; i < 50; ++i) text += "<|end|>";
  text += "xy xy xy";
  const auto trained = train(text, {.vocab_size = 400, .special_tokens = {"<|end|>"}});
  for (const auto& [left, right] : trained.merges) {
    EXPECT_EQ((left + right).find("end"), std::string::npos);
  }
}

TEST(BpeTrainer, RefusesSizesThatContradict) {
  BpeTrainer small({.vocab_size = 256, .special_tokens = {"<s>"}});
  ASSERT_TRUE(small.feed("text").has_value());
  EXPECT_EQ(small.train().error().code, Code::kInvalidArgument);
  BpeTrainer unfed({.vocab_size = 300});
  EXPECT_EQ(unfed.train().error().code, Code::kInvalidArgument);
  BpeTrainer twice({.vocab_size = 300, .special_tokens = {"<s>", "<s>"}});
  EXPECT_EQ(twice.feed("text").error().code, Code::kInvalidArgument);
}

TEST(BpeTrainer, IsCancelledThroughItsProgress) {
  BpeTrainer trainer({.vocab_size = 800});
  ASSERT_TRUE(trainer.feed(corpus()).has_value());
  const auto result = trainer.train([](int32_t done, int32_t) { return done < 128; });
  ASSERT_FALSE(result.has_value());
  EXPECT_EQ(result.error().code, Code::kCancelled);
}

class WrittenTokenizer : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = test_root() + "jige_trained_" + std::to_string(::getpid());
    const auto trained = train(
        corpus(), {.vocab_size = 700, .special_tokens = {"<|bos|>", "<|eos|>", "<|im_start|>"}});
    const auto written = write_tokenizer_folder(trained, {.folder = folder_,
                                                          .bos_token = "<|bos|>",
                                                          .eos_token = "<|eos|>",
                                                          .pad_token = "<|eos|>",
                                                          .chat_template = "{{ messages }}",
                                                          .context_tokens = 512});
    ASSERT_TRUE(written.has_value()) << written.error().message;
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  std::string folder_;
};

TEST_F(WrittenTokenizer, IsLoadedWithItsRolesAndTemplate) {
  const auto tokenizer = Tokenizer::load(folder_);
  ASSERT_TRUE(tokenizer.has_value()) << tokenizer.error().message;
  EXPECT_EQ(tokenizer->vocab_size(), 700);
  EXPECT_EQ(tokenizer->bos_id(), 697);
  EXPECT_EQ(tokenizer->eos_id(), 698);
  EXPECT_EQ(tokenizer->pad_id(), 698);
  EXPECT_EQ(tokenizer->eos_ids(), std::vector<int32_t>{698});
  EXPECT_EQ(tokenizer->chat_template(), "{{ messages }}");
  const auto ids = tokenizer->encode("the river<|eos|>", {});
  ASSERT_TRUE(ids.has_value());
  EXPECT_EQ(ids->front(), 697);
  EXPECT_EQ(ids->back(), 698);
}

TEST_F(WrittenTokenizer, StaysWholeWhenItCannotBeReplaced) {
  const auto read = [&](const char* name) {
    std::ifstream file(folder_ + "/" + name);
    return std::string(std::istreambuf_iterator<char>(file), {});
  };
  const std::string config = read("tokenizer_config.json");
  std::filesystem::remove(folder_ + "/tokenizer.json");
  std::filesystem::create_directory(folder_ + "/tokenizer.json");
  const auto other = train("ab ab", {.vocab_size = 300, .special_tokens = {"<s>"}});
  EXPECT_FALSE(write_tokenizer_folder(other, {.folder = folder_, .bos_token = "<s>"}).has_value());
  EXPECT_EQ(read("tokenizer_config.json"), config);
  for (const auto& entry : std::filesystem::directory_iterator(folder_)) {
    EXPECT_TRUE(entry.path().extension() == ".json") << entry.path() << " was left behind";
  }
}

TEST_F(WrittenTokenizer, GivesBackEveryText) {
  const auto tokenizer = Tokenizer::load(folder_);
  ASSERT_TRUE(tokenizer.has_value());
  for (const Json& row : fixture_rows("tokenizers/gpt2/cases.jsonl")) {
    if (!row.contains("text")) continue;
    const std::string text = row_input(row);
    const auto ids = tokenizer->encode(text, {.add_special = false, .allow_special = false});
    ASSERT_TRUE(ids.has_value());
    EXPECT_EQ(*tokenizer->decode(*ids, {}), text);
  }
}

TEST(TokenizerJson, RefusesARoleThatIsNotASpecialToken) {
  const auto trained = train("ab ab", {.vocab_size = 300, .special_tokens = {"<s>"}});
  const auto text = tokenizer_json(trained, {.folder = "", .bos_token = "<bos>"});
  ASSERT_FALSE(text.has_value());
  EXPECT_EQ(text.error().code, Code::kInvalidArgument);
  EXPECT_NE(text.error().message.find("<bos>"), std::string::npos);
}

}  // namespace
}  // namespace jige::text
