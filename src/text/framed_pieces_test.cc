// A spm.model: what stands around DeBERTa's texts, and what is refused. Ids of texts are compared
// with SentencePiece's in tokenizer_fixture_test.cc.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "base/file.h"
#include "base/test_path.h"
#include "text/post_processor.h"
#include "text/test_fixtures.h"
#include "text/tokenizer.h"

namespace jige::text {
namespace {

constexpr int32_t kCls = 1, kSep = 2;

// A folder with the recorded pieces.
class PiecesFolder {
 public:
  PiecesFolder() : path_(test_root() + "jige_pieces." + std::to_string(getpid())) {
    std::filesystem::remove_all(path_);
    std::filesystem::create_directory(path_);
    std::filesystem::copy(fixture_path("sentencepiece/deberta/spm.model"), path_);
  }
  ~PiecesFolder() { std::filesystem::remove_all(path_); }
  void write(const std::string& name, const std::string& text) const {
    std::ofstream(path_ + "/" + name) << text;
  }
  Result<Tokenizer> load() const { return Tokenizer::load(path_); }
  void expect_refused(Code code, const std::string& part) const {
    const auto made = load();
    ASSERT_FALSE(made.has_value()) << part;
    EXPECT_EQ(made.error().code, code) << made.error().message;
    EXPECT_NE(made.error().message.find(part), std::string::npos) << made.error().message;
    EXPECT_NE(made.error().message.find("spm.model"), std::string::npos) << made.error().message;
  }

 private:
  std::string path_;
};

TEST(FramedPieces, StandBetweenTheTokensOfTheClass) {
  const PiecesFolder folder;
  const auto tokenizer = folder.load();
  ASSERT_TRUE(tokenizer.has_value()) << tokenizer.error().message;
  // The pieces that SentencePiece has for it.
  const Ids plain = {9, 4, 284, 60, 37, 8, 150, 286, 4, 199};
  EXPECT_EQ(*tokenizer->encode("the words of it", {.add_special = false}), plain);
  Ids framed = {kCls};
  framed.insert(framed.end(), plain.begin(), plain.end());
  framed.push_back(kSep);
  EXPECT_EQ(*tokenizer->encode("the words of it", {}), framed);
  const PairFrame* pair = tokenizer->pair_frame();
  ASSERT_NE(pair, nullptr);
  EXPECT_EQ(pair->before, Ids{kCls});
  EXPECT_EQ(pair->between, Ids{kSep});
  EXPECT_EQ(pair->behind, Ids{kSep});
  EXPECT_EQ(pair->second_from, size_t{1});
}

TEST(FramedPieces, HaveAMaskBehindThem) {
  const PiecesFolder folder;
  const auto tokenizer = folder.load();
  ASSERT_TRUE(tokenizer.has_value());
  const int32_t mask = tokenizer->token_to_id("[MASK]").value_or(-1);
  EXPECT_EQ(mask, 296);
  EXPECT_TRUE(tokenizer->is_special(mask));
  EXPECT_EQ(tokenizer->encode("[MASK]", {})->at(1), mask);
  const Ids as_text = *tokenizer->encode("[MASK]", {.allow_special = false});
  EXPECT_EQ(std::ranges::count(as_text, mask), 0);
}

TEST(FramedPieces, AreThoseOfDebertaAlone) {
  const PiecesFolder folder;
  folder.write("tokenizer_config.json", R"({"tokenizer_class": "DebertaV2TokenizerFast"})");
  EXPECT_TRUE(folder.load().has_value());
  folder.write("tokenizer_config.json", R"({"tokenizer_class": "SpeechTokenizer"})");
  folder.expect_refused(Code::kUnsupported, "SpeechTokenizer");
  folder.write("tokenizer_config.json", R"({"do_lower_case": true})");
  folder.expect_refused(Code::kUnsupported, "do_lower_case");
  folder.write("tokenizer_config.json", R"({"do_lower_case": false, "split_by_punct": true})");
  folder.expect_refused(Code::kUnsupported, "split_by_punct");
  folder.write("tokenizer_config.json", R"({"cls_token": "<none>"})");
  folder.expect_refused(Code::kCorrupt, "<none>");
  folder.write("tokenizer_config.json", "{}");
  folder.write("spm.model", "no pieces");
  folder.expect_refused(Code::kCorrupt, "SentencePiece");
}

}  // namespace
}  // namespace jige::text
