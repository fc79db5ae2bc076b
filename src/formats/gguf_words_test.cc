#include "formats/gguf_words.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "text/pre_tokenizer.h"

namespace jige::formats {
namespace {

class CutWords final : public text::PieceSink {
 public:
  Status take(const text::Piece& piece) override {
    found.emplace_back(piece.text);
    return {};
  }
  std::vector<std::string> found;
};

// As Hugging Face tokenizers cut it.
TEST(GgufWords, CutAsTheirNameSays) {
  struct Case {
    const char* name;
    bool nfc;
    bool ignore_merges;
    std::vector<std::string> words;
  };
  const std::string text = "I'LL see  x1234;\n\nHTTPServer's";
  for (const Case& one : std::vector<Case>{
           {"exaone",
            false,
            false,
            {"I", "'", "LL", " see", " ", " x", "1", "2", "3", "4", ";", "\n", "\n", "HTTPServer",
             "'s"}},
           {"olmo",
            true,
            false,
            {"I", "'", "LL", " see", " ", " x", "1234", ";", "\n", "\n", "HTTPServer", "'s"}},
           {"seed-coder",
            false,
            false,
            {"I", "'LL", " see", " ", " x", "1", "2", "3", "4", ";", "\n\n", "HTTPServer", "'s"}},
           {"gpt-4o",
            false,
            false,
            {"I'LL", " see", " ", " x", "123", "4", ";\n\n", "HTTPServer's"}},
           {"qwen35",
            true,
            false,
            {"I", "'LL", " see", " ", " x", "1", "2", "3", "4", ";\n\n", "HTTPServer", "'s"}},
           {"command-r",
            true,
            false,
            {"I", "'", "LL", " see", " ", " x", "1", "2", "3", "4", ";", "\n", "\n", "HTTPServer",
             "'s"}},
           {"glm4",
            false,
            true,
            {"I", "'LL", " see", " ", " x", "123", "4", ";\n\n", "HTTPServer", "'s"}},
           {"falcon3",
            false,
            true,
            {"I", "'LL", " see", " ", " x", "123", "4", ";\n\n", "HTTPServer", "'s"}},
           {"solar-open",
            false,
            false,
            {"I", "'LL", " see", " ", " x", "1", "2", "3", "4", ";\n\n", "HTTPServer", "'s"}},
           {"youtu",
            false,
            true,
            {"I'LL", " see", " ", " x", "1", "2", "3", "4", ";\n\n", "HTTPServer's"}},
           {"jais-2",
            false,
            false,
            {"I", "'LL", " see", " ", " x", "123", "4", ";\n\n", "HTTPServer", "'s"}},
       }) {
    const auto known = find_gguf_words(one.name);
    ASSERT_TRUE(known.has_value()) << one.name;
    EXPECT_EQ(!known->normalizer.is_null(), one.nfc) << one.name;
    EXPECT_EQ(known->ignore_merges, one.ignore_merges) << one.name;
    const auto cutter = text::PreTokenizer::from_json(&known->pre_tokenizer, one.name);
    ASSERT_TRUE(cutter.has_value()) << cutter.error().message;
    text::RegexScratch scratch;
    CutWords words;
    ASSERT_TRUE(cutter->apply({text}, scratch, words).has_value());
    EXPECT_EQ(words.found, one.words) << one.name;
  }
}

TEST(GgufWords, OfYoutuLeaveScriptsApart) {
  const auto known = find_gguf_words("youtu");
  const auto cutter = text::PreTokenizer::from_json(&known->pre_tokenizer, "youtu");
  text::RegexScratch scratch;
  CutWords words;
  ASSERT_TRUE(cutter->apply({"see\uac00\u4e00\uff01x"}, scratch, words).has_value());
  EXPECT_EQ(words.found, (std::vector<std::string>{"see", "\uac00", "\u4e00", "\uff01", "x"}));
}

// Of eight spaces before a word four stand alone, then two, one, and one with the word.
TEST(GgufWords, OfJais2CutRunsOfSpacesByPowersOfTwo) {
  const auto known = find_gguf_words("jais-2");
  const auto cutter = text::PreTokenizer::from_json(&known->pre_tokenizer, "jais-2");
  text::RegexScratch scratch;
  CutWords words;
  ASSERT_TRUE(cutter->apply({"a        b"}, scratch, words).has_value());
  EXPECT_EQ(words.found, (std::vector<std::string>{"a", "    ", "  ", " ", " b"}));
}

TEST(GgufWords, AreKnownByTheirParts) {
  const auto olmo = find_gguf_words("olmo");
  ASSERT_TRUE(olmo.has_value());
  EXPECT_EQ(gguf_words_name(olmo->normalizer, olmo->pre_tokenizer, false), "olmo");
  EXPECT_EQ(gguf_words_name(Json(), olmo->pre_tokenizer, false), "gpt-2");
}

}  // namespace
}  // namespace jige::formats
