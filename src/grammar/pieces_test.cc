#include "grammar/pieces.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "grammar/grammar_test_support.h"

namespace jige::grammar {
namespace {

using testing::compiled;
using testing::fits;
using testing::grammar_of;
using testing::Kind;

ConstraintSource source_of(Json piece) { return {Kind::kPieces, std::move(piece)}; }

TEST(Pieces, StandOneBehindTheOtherOrForEachOther) {
  const Json number = json_piece({{"type", "integer"}}, "a number");
  const auto source = source_of(row_piece(
      {text_piece("<"), either_piece({number, text_piece("-"), text_piece("")}), text_piece(">")}));
  for (const char* good : {"<7>", "<-12>", "<->", "<>"}) EXPECT_TRUE(fits(source, good)) << good;
  for (const char* bad : {"", "<", "<7", "<--1>", "<7->", "<7>>"}) {
    EXPECT_FALSE(fits(source, bad)) << bad;
  }
}

TEST(Pieces, AreRepeatedWithSomethingBetween) {
  const auto several = source_of(
      row_piece({repeated_piece(either_piece({text_piece("a"), text_piece("b")}), text_piece(", ")),
                 text_piece(".")}));
  for (const char* good : {"a.", "b, a.", "a, a, b."}) EXPECT_TRUE(fits(several, good)) << good;
  for (const char* bad : {".", "ab.", "a, .", "a,b."}) EXPECT_FALSE(fits(several, bad)) << bad;
  EXPECT_TRUE(fits(source_of(repeated_piece(text_piece("a"), text_piece(""))), "aaa"));
}

TEST(Pieces, NameThePlaceOfASchemaThatIsRefused) {
  const auto grammar =
      compiled(source_of(row_piece({text_piece("x"), json_piece({{"not", true}}, "the schema")})));
  ASSERT_FALSE(grammar);
  EXPECT_EQ(grammar.error().message, "the schema: #/not is not supported");
}

TEST(Pieces, OnlyTheTokenItselfSpellsASpecialOne) {
  // As token_texts gives them: the special token is 0, and 1 to 5 spell its name.
  const auto trie = std::make_shared<const TokenTrie>(
      std::vector<std::string>{special_text("[X]"), "[", "X", "]", "[X", "[X]", "a"});
  const auto allowed = [&](const ConstraintSource& source) {
    ConstraintCursor cursor(*Constraint::create(grammar_of(source), trie));
    return (**cursor.allowed())[0];
  };
  EXPECT_EQ(allowed(source_of(row_piece({special_piece("[X]"), text_piece("a")}))), 0b1u);
  EXPECT_EQ(allowed(source_of(text_piece("[X]a"))), 0b110010u);
  EXPECT_EQ(allowed({Kind::kRegex, ".*"}), 0b1111110u);
  EXPECT_FALSE(compiled({Kind::kChoices, Json::array({special_text("[X]")})})) << "no UTF-8";
}

}  // namespace
}  // namespace jige::grammar
