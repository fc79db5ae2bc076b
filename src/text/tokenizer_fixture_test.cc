// Ids and decoded texts against those recorded from Hugging Face tokenizers, SentencePiece,
// mistral_common, tiktoken and transformers.
// A case is a line of a cases.jsonl; adding one needs no C++.
#include "text/test_fixtures.h"
#include "text/tokenizer.h"

namespace jige::text {
namespace {

Ids ids_of(const Json& row, const char* field) { return row[field].get<Ids>(); }

std::string shown(const Json& row) {
  std::string text = row.dump();
  return text.size() < 160 ? text : text.substr(0, 157) + "...";
}

void expect_ids(const Tokenizer& tokenizer, const Json& row, const EncodeOptions& options,
                const Ids& expected) {
  const auto ids = tokenizer.encode(row_input(row), options);
  ASSERT_TRUE(ids.has_value()) << ids.error().message;
  EXPECT_EQ(*ids, expected) << shown(row);
}

void expect_text(const Tokenizer& tokenizer, const Ids& ids, bool skip, const std::string& expected,
                 const Json& row) {
  const auto text = tokenizer.decode(ids, {.skip_special = skip});
  ASSERT_TRUE(text.has_value()) << text.error().message;
  EXPECT_EQ(*text, expected) << shown(row);
  StreamDecoder stream(tokenizer, {.skip_special = skip});
  std::string streamed;
  for (const int32_t id : ids) {
    const auto piece = stream.push(id);
    ASSERT_TRUE(piece.has_value());
    streamed += *piece;
  }
  streamed += stream.flush();
  EXPECT_EQ(streamed, expected) << shown(row);
}

void check_row(const Tokenizer& tokenizer, const Json& row) {
  if (row.contains("decode")) {
    expect_text(tokenizer, ids_of(row, "decode"), false, row["decoded"], row);
    return;
  }
  const Ids ids = ids_of(row, "ids");
  const Ids plain = row.contains("ids_plain") ? ids_of(row, "ids_plain") : ids;
  const Ids as_text = row.contains("ids_as_text") ? ids_of(row, "ids_as_text") : plain;
  expect_ids(tokenizer, row, {}, ids);
  expect_ids(tokenizer, row, {.add_special = false}, plain);
  expect_ids(tokenizer, row, {.add_special = false, .allow_special = false}, as_text);
  const std::string decoded = row["decoded"];
  expect_text(tokenizer, ids, false, decoded, row);
  expect_text(tokenizer, ids, true, row.value("decoded_skip", decoded), row);
}

void check_folders(const std::string& above) {
  for (const auto& name : fixture_folders(above)) {
    SCOPED_TRACE(name);
    const auto tokenizer = Tokenizer::load(fixture_path(above + "/" + name));
    ASSERT_TRUE(tokenizer.has_value()) << tokenizer.error().message;
    const auto rows = fixture_rows(above + "/" + name + "/cases.jsonl");
    EXPECT_GE(rows.size(), 70u);
    for (const Json& row : rows) check_row(*tokenizer, row);
  }
}

TEST(TokenizerFixtures, IdsAndTextsOfEveryFamilyEqualTheRecording) {
  EXPECT_GE(fixture_folders("tokenizers").size(), 18u);
  check_folders("tokenizers");
}

TEST(VocabListFixtures, IdsAndTextsEqualThoseOfTransformers) {
  EXPECT_EQ(fixture_folders("vocab_lists").size(), 4u);
  check_folders("vocab_lists");
}

TEST(MergeListFixtures, IdsAndTextsEqualThoseOfTransformers) {
  EXPECT_EQ(fixture_folders("merge_lists").size(), 7u);
  check_folders("merge_lists");
}

TEST(RankFixtures, IdsAndTextsEqualThoseOfTiktoken) {
  EXPECT_GE(fixture_folders("ranks").size(), 4u);
  check_folders("ranks");
}

TEST(SentencePieceFixtures, IdsEqualThoseOfThePythonLibrary) {
  for (const auto& name : fixture_folders("sentencepiece")) {
    SCOPED_TRACE(name);
    const auto tokenizer = Tokenizer::load(fixture_path("sentencepiece/" + name));
    ASSERT_TRUE(tokenizer.has_value()) << tokenizer.error().message;
    for (const Json& row : fixture_rows("sentencepiece/" + name + "/cases.jsonl")) {
      expect_ids(*tokenizer, row, {.add_special = false, .allow_special = false},
                 ids_of(row, "ids"));
    }
  }
}

}  // namespace
}  // namespace jige::text
