// The borders of BERT's tokenizers: the longest word that has pieces, and which characters stand by
// themselves.
#include "text/word_piece.h"

#include <gtest/gtest.h>

#include <map>

#include "base/rng.h"
#include "base/test_fuzz_rounds.h"
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

// The rule, word for word: of the rest of a word the longest piece; no piece, no word.
std::vector<int32_t> plain_pieces(const std::map<std::string, int32_t>& ids,
                                  const std::u32string& word) {
  std::vector<int32_t> pieces;
  for (size_t begin = 0; begin < word.size();) {
    size_t end = word.size();
    for (; end > begin; --end) {
      std::string piece = begin > 0 ? "##" : "";
      for (size_t i = begin; i < end; ++i) piece += to_utf8(word[i]);
      const auto found = ids.find(piece);
      if (found == ids.end()) continue;
      pieces.push_back(found->second);
      break;
    }
    if (end == begin) return {0};
    begin = end;
  }
  return pieces;
}

TEST(WordPiece, TakesTheLongestPiecesOfRandomVocabularies) {
  constexpr char32_t kLetters[] = {U'a', U'b', 0xE9, 0x4E00, 0x1F600};
  int unknown = 0, known = 0;
  for (uint64_t seed = 0; seed < fuzz_rounds(60); ++seed) {
    Rng rng(derive_key(seed, "word pieces"));
    const auto letters = [&](uint64_t count) {
      std::u32string word;
      while (word.size() < count) word += kLetters[rng.below(std::size(kLetters))];
      return word;
    };
    std::map<std::string, int32_t> ids = {{"[UNK]", 0}};
    for (uint64_t i = rng.below(40); i > 0; --i) {
      std::string piece = rng.below(2) == 0 ? "##" : "";
      for (const char32_t c : letters(1 + rng.below(3))) piece += to_utf8(c);
      ids.emplace(piece, static_cast<int32_t>(ids.size()));
    }
    const auto vocabulary = std::make_shared<const Vocabulary>(
        Vocabulary::create({ids.begin(), ids.end()}, "x").value());
    const WordPieceModel model = WordPieceModel::create(vocabulary, {}, "x").value();
    WordPieceScratch scratch;
    for (int i = 0; i < 60; ++i) {
      const std::u32string word = letters(1 + rng.below(6));
      std::string text;
      for (const char32_t c : word) text += to_utf8(c);
      std::vector<int32_t> got;
      ASSERT_TRUE(model.encode(text, scratch, got));
      const std::vector<int32_t> expected = plain_pieces(ids, word);
      ASSERT_EQ(got, expected) << text << ", seed " << seed;
      ++(expected == std::vector<int32_t>{0} ? unknown : known);
    }
  }
  EXPECT_GT(unknown, 500);
  EXPECT_GT(known, 500);
}

// Valid text comes out, without control characters where they go, and what is only cleaned stays as
// it is when it is cleaned once more.
TEST(BertNormalizer, LeavesNothingOfWhatItTakesAway) {
  Rng rng(derive_key(1, "bert"));
  for (uint64_t round = 0; round < fuzz_rounds(3000); ++round) {
    std::string text;
    for (uint64_t i = rng.below(12); i > 0; --i) {
      const auto c = static_cast<char32_t>(rng.below(rng.below(2) == 0 ? 0x500 : 0x110000));
      if (c < 0xD800 || c > 0xDFFF) text += to_utf8(c);
    }
    const BertChanges changes = {.cleans = rng.below(2) == 0,
                                 .spaces_chinese = rng.below(2) == 0,
                                 .strips_accents = rng.below(2) == 0,
                                 .lowers = rng.below(2) == 0};
    const std::string changed = normalize_as_bert(text, changes);
    ASSERT_TRUE(is_valid_utf8(changed)) << round;
    for (size_t at = 0; at < changed.size();) {
      const Decoded next = decode_utf8(std::string_view(changed).substr(at));
      at += next.size;
      ASSERT_FALSE(changes.cleans && is_other(next.code_point)) << round;
    }
    if (changes.spaces_chinese || changes.lowers || changes.strips_accents) continue;
    ASSERT_EQ(normalize_as_bert(changed, changes), changed) << round;
  }
}

TEST(BertNormalizer, SpacesStandAroundChineseCharacters) {
  for (const char32_t c : {0x3400, 0x4E00, 0x9FFF, 0xF900, 0xFAFF, 0x20000, 0x2B920, 0x2FA1F}) {
    EXPECT_EQ(normalize_as_bert(to_utf8(c), {.strips_accents = false}), " " + to_utf8(c) + " ");
  }
  EXPECT_EQ(normalize_as_bert(to_utf8(0x3041), {}), to_utf8(0x3041));
}

}  // namespace
}  // namespace jige::text
