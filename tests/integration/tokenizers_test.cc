// Whole lives of models whose tokenizer is no byte-level BPE in a tokenizer.json.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "integration/process.h"
#include "integration/tiny_run.h"

namespace jige::integration {
namespace {

using ::testing::HasSubstr;

struct TokenizerCase {
  const char* folder;  // of tests/fixtures/text
  const char* file;    // that is the tokenizer
  bool is_json;
};

class OtherTokenizers : public ::testing::TestWithParam<TokenizerCase> {};

TEST_P(OtherTokenizers, TrainServeAndStayInTheFolder) {
  const TokenizerCase& one = GetParam();
  const std::string tokenizer = std::string(JIGE_SOURCE_DIR) + "/tests/fixtures/text/" + one.folder;
  const TestFolder folder;
  std::string text;
  for (int i = 0; i < 120; ++i) text += "The miller's daughter counted 128 sacks.\n\n";
  write_text(folder / "text.txt", text);
  const Outcome training = run_jige({"train",
                                     "--data",
                                     folder / "text.txt",
                                     "--tokenizer",
                                     tokenizer,
                                     "--width",
                                     "32",
                                     "--layers",
                                     "1",
                                     "--heads",
                                     "2",
                                     "--context",
                                     "64",
                                     "--steps",
                                     "2",
                                     "--batch-tokens",
                                     "128",
                                     "--threads",
                                     "1",
                                     "--out",
                                     folder / "run"});
  ASSERT_EQ(training.exit_code, 0) << training.err;
  const std::string model = folder / "run/model";
  EXPECT_TRUE(std::filesystem::exists(model + "/" + one.file));

  const std::string sentence = "caf\u00e9 don't  42";
  const Json ids = run_jige({"tokenize", model, "--text", sentence, "--json"}).json();
  EXPECT_EQ(ids["ids"],
            run_jige({"tokenize", tokenizer, "--text", sentence, "--json"}).json()["ids"]);
  const Outcome back =
      run_jige({"tokenize", model, "--decode", "--no-special", "--text", dump_json(ids["ids"])});
  EXPECT_EQ(back.out, sentence + "\n");
  const Outcome answer = run_jige({"generate", model, "--prompt", "The miller", "--regex",
                                   "( \u00e9t\u00e9\\.){3}", "--max-new-tokens", "60"});
  EXPECT_EQ(answer.out, " \u00e9t\u00e9. \u00e9t\u00e9. \u00e9t\u00e9.\n") << answer.err;
  EXPECT_THAT(run_jige({"inspect", model}).out, HasSubstr("tokenizer"));

  const Outcome gguf = run_jige({"export", model, "--gguf", folder / "model.gguf"});
  EXPECT_EQ(gguf.exit_code, 5);
  EXPECT_THAT(gguf.err, HasSubstr(one.is_json ? "Unigram" : "has no tokenizer.json"));
}

INSTANTIATE_TEST_SUITE_P(, OtherTokenizers,
                         ::testing::Values(TokenizerCase{"ranks/tekken_v13", "tekken.json", false},
                                           TokenizerCase{"ranks/moonshot", "tiktoken.model", false},
                                           TokenizerCase{"merge_lists/opt", "merges.txt", false},
                                           TokenizerCase{"merge_lists/bart", "vocab.json", false},
                                           TokenizerCase{"tokenizers/unigram_bytes",
                                                         "tokenizer.json", true}));

}  // namespace
}  // namespace jige::integration
