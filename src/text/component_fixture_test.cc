// Single normalizers, pre-tokenizers and decoders against recordings from Hugging Face tokenizers.
#include "base/file.h"
#include "base/json.h"
#include "text/bert_normalizer.h"
#include "text/byte_level.h"
#include "text/decoder.h"
#include "text/normalizer.h"
#include "text/pre_tokenizer.h"
#include "text/test_fixtures.h"
#include "text/unicode.h"

namespace jige::text {
namespace {

// Keeps the words, spelled as characters where they are raw bytes.
class Collector final : public PieceSink {
 public:
  explicit Collector(bool spells) : spells_(spells) {}
  Status take(const Piece& piece) override {
    found.emplace_back(spells_ ? "" : piece.text);
    if (spells_) append_byte_level(found.back(), piece.text);
    return {};
  }
  std::vector<std::string> found;

 private:
  bool spells_;
};

TEST(ComponentFixtures, NormalizersChangeTextAsRecorded) {
  RegexScratch scratch;
  for (const Json& row : fixture_rows("components/normalizers.jsonl")) {
    const auto normalizer = Normalizer::from_json(&row["normalizer"], "fixture");
    ASSERT_TRUE(normalizer.has_value()) << normalizer.error().message;
    const auto result = normalizer->apply(row["text"].get<std::string>(), scratch);
    ASSERT_TRUE(result.has_value()) << result.error().message;
    EXPECT_EQ(result->text, row["result"].get<std::string>()) << row.dump();
  }
}

// Every character up to U+1FFFF, in a text of three.
TEST(ComponentFixtures, BertLeavesOutTheCharactersThatAreRecorded) {
  const std::string path = fixture_path("components/bert_characters.json");
  const Json recorded = parse_json(read_file(path).value(), path).value();
  for (const bool cleans : {false, true}) {
    const BertChanges changes{
        .cleans = cleans, .spaces_chinese = false, .strips_accents = !cleans, .lowers = false};
    const Json& ranges = recorded[cleans ? "clean_text" : "strip_accents"];
    size_t range = 0;
    for (char32_t c = 1; c < 0x20000; ++c) {
      if (c >= 0xD800 && c < 0xE000) continue;
      while (range < ranges.size() && c > ranges[range][1].get<char32_t>()) ++range;
      const bool left_out = range < ranges.size() && c >= ranges[range][0].get<char32_t>();
      EXPECT_EQ(normalize_as_bert("a" + to_utf8(c) + "b", changes) == "ab", left_out)
          << std::hex << static_cast<uint32_t>(c);
    }
  }
}

TEST(ComponentFixtures, PreTokenizersCutTextAsRecorded) {
  RegexScratch scratch;
  for (const Json& row : fixture_rows("components/pre_tokenizers.jsonl")) {
    const auto pre_tokenizer = PreTokenizer::from_json(&row["pre_tokenizer"], "fixture");
    ASSERT_TRUE(pre_tokenizer.has_value()) << pre_tokenizer.error().message;
    const auto text = row["text"].get<std::string>();
    Collector words(pre_tokenizer->leaves_bytes());
    if (!text.empty()) {
      const auto status = pre_tokenizer->apply({text, PieceStart::kInput}, scratch, words);
      ASSERT_TRUE(status.has_value()) << status.error().message;
    }
    EXPECT_EQ(words.found, row["pieces"].get<std::vector<std::string>>()) << row.dump();
  }
}

TEST(ComponentFixtures, DecodersJoinTokensAsRecorded) {
  for (const Json& row : fixture_rows("components/decoders.jsonl")) {
    const auto decoder = Decoder::from_json(&row["decoder"], "fixture");
    ASSERT_TRUE(decoder.has_value()) << decoder.error().message;
    DecoderRun run(*decoder);
    std::string text;
    for (const Json& token : row["tokens"]) run.push(token.get<std::string>(), text);
    run.finish(text);
    EXPECT_EQ(text, row["text"].get<std::string>()) << row.dump();
  }
}

}  // namespace
}  // namespace jige::text
