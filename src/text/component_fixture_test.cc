// Single normalizers, pre-tokenizers and decoders against recordings from Hugging Face tokenizers.
#include "text/byte_level.h"
#include "text/decoder.h"
#include "text/normalizer.h"
#include "text/pre_tokenizer.h"
#include "text/test_fixtures.h"

namespace jige::text {
namespace {

TEST(ComponentFixtures, NormalizersChangeTextAsRecorded) {
  RegexScratch scratch;
  for (const Json& row : fixture_rows("components/normalizers.jsonl")) {
    const auto normalizer = Normalizer::from_json(&row["normalizer"], "fixture");
    ASSERT_TRUE(normalizer.has_value()) << normalizer.error().message;
    const auto result = normalizer->apply(row["text"].get<std::string>(), scratch);
    ASSERT_TRUE(result.has_value()) << result.error().message;
    EXPECT_EQ(*result, row["result"].get<std::string>()) << row.dump();
  }
}

TEST(ComponentFixtures, PreTokenizersCutTextAsRecorded) {
  RegexScratch scratch;
  for (const Json& row : fixture_rows("components/pre_tokenizers.jsonl")) {
    const auto pre_tokenizer = PreTokenizer::from_json(&row["pre_tokenizer"], "fixture");
    ASSERT_TRUE(pre_tokenizer.has_value()) << pre_tokenizer.error().message;
    const auto text = row["text"].get<std::string>();
    Pieces pieces;
    if (!text.empty()) pieces.list.push_back({text, true});
    const auto status = pre_tokenizer->apply(pieces, scratch);
    ASSERT_TRUE(status.has_value()) << status.error().message;
    std::vector<std::string> found;
    for (const Piece& piece : pieces.list) {
      found.emplace_back(piece.text);
      if (!pre_tokenizer->leaves_bytes()) continue;
      std::string spelled;
      append_byte_level(spelled, found.back());
      found.back() = spelled;
    }
    EXPECT_EQ(found, row["pieces"].get<std::vector<std::string>>()) << row.dump();
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
