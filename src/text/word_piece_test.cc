// The borders of BERT's tokenizers: the longest word that has pieces, and which characters stand by
// themselves.
#include "text/word_piece.h"

#include <gtest/gtest.h>

#include "text/bert_normalizer.h"
#include "text/unicode.h"

namespace jige::text {
namespace {

TEST(WordPiece, WordsHavePiecesUpToTheLimit) {
  const auto vocabulary = std::make_shared<const Vocabulary>(
      Vocabulary::create({{"[UNK]", 0}, {"a", 1}, {"##a", 2}}, "x").value());
  const WordPieceModel model =
      WordPieceModel::create(vocabulary, {.characters_max = 3}, "x").value();
  WordPieceScratch scratch;
  std::vector<int32_t> ids;
  ASSERT_TRUE(model.encode("aaa", scratch, ids));
  ASSERT_TRUE(model.encode("aaaa", scratch, ids));
  EXPECT_EQ(ids, (std::vector<int32_t>{1, 2, 2, 0}));
}

TEST(BertNormalizer, SpacesStandAroundChineseCharacters) {
  for (const char32_t c : {0x3400, 0x4E00, 0x9FFF, 0xF900, 0xFAFF, 0x20000, 0x2B920, 0x2FA1F}) {
    EXPECT_EQ(normalize_as_bert(to_utf8(c), {.strips_accents = false}), " " + to_utf8(c) + " ");
  }
  EXPECT_EQ(normalize_as_bert(to_utf8(0x3041), {}), to_utf8(0x3041));
}

}  // namespace
}  // namespace jige::text
