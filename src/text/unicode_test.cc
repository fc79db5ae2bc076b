#include "text/unicode.h"

#include <gtest/gtest.h>

namespace jige::text {
namespace {

TEST(Utf8, EncodesAndDecodesEveryCharacter) {
  for (char32_t c = 0; c <= 0x10FFFF; ++c) {
    if (c >= 0xD800 && c <= 0xDFFF) continue;
    const std::string text = to_utf8(c);
    const Decoded decoded = decode_utf8(text);
    ASSERT_TRUE(decoded.valid);
    ASSERT_EQ(decoded.code_point, c);
    ASSERT_EQ(decoded.size, text.size());
    ASSERT_EQ(utf8_size(text[0]), text.size());
  }
}

TEST(Utf8, ReplacesEveryMaximalIllFormedPartOnce) {
  const std::string r = "\xEF\xBF\xBD";
  EXPECT_EQ(replace_invalid_utf8("\x80"), r);
  EXPECT_EQ(replace_invalid_utf8("a\xFF\xFE b"), "a" + r + r + " b");
  EXPECT_EQ(replace_invalid_utf8("\xE2\x82"), r);
  EXPECT_EQ(replace_invalid_utf8("\xE2\x82x"), r + "x");
  EXPECT_EQ(replace_invalid_utf8("\xF0\x9F\x98\xF0\x9F\x98\x80"), r + "\xF0\x9F\x98\x80");
  EXPECT_EQ(replace_invalid_utf8("\xED\xA0\x80"), r + r + r);
  EXPECT_EQ(replace_invalid_utf8("\xC0\xAF"), r + r);
  EXPECT_EQ(replace_invalid_utf8("\xF4\x90\x80\x80"), r + r + r + r);
  EXPECT_EQ(replace_invalid_utf8(std::string("\0ok", 3)), std::string("\0ok", 3));
}

TEST(Utf8, KnowsHowManyBytesAtTheEndAwaitMore) {
  EXPECT_EQ(incomplete_utf8_suffix(""), 0u);
  EXPECT_EQ(incomplete_utf8_suffix("abc"), 0u);
  EXPECT_EQ(incomplete_utf8_suffix("a\xE2"), 1u);
  EXPECT_EQ(incomplete_utf8_suffix("a\xE2\x82"), 2u);
  EXPECT_EQ(incomplete_utf8_suffix("a\xE2\x82\xAC"), 0u);
  EXPECT_EQ(incomplete_utf8_suffix("\xF0\x9F\x98"), 3u);
  EXPECT_EQ(incomplete_utf8_suffix("\xE0\x80"), 0u) << "no byte can complete an overlong form";
  EXPECT_EQ(incomplete_utf8_suffix("\x80\x80\x80"), 0u);
  EXPECT_EQ(incomplete_utf8_suffix("\xC0"), 0u);
}

TEST(NormalForms, SortLongRunsOfMarksInLinearithmicTime) {
  std::string text = "a";
  for (int i = 0; i < 150000; ++i) text += i % 2 ? "\xCC\x81" : "\xCC\xA3";  // U+0301, U+0323
  const std::string decomposed = normalize(text, NormalForm::kNfd);
  EXPECT_EQ(decomposed.size(), text.size());
  EXPECT_EQ(decomposed.substr(1, 4), "\xCC\xA3\xCC\xA3") << "class 220 stands before class 230";
  EXPECT_EQ(normalize(decomposed, NormalForm::kNfd), decomposed);
}

TEST(NormalForms, LeavePlainTextAlone) {
  EXPECT_EQ(normalize("plain \xC3\xA9", NormalForm::kNfc), "plain \xC3\xA9");
  EXPECT_EQ(normalize("e\xCC\x81", NormalForm::kNfc), "\xC3\xA9");
  EXPECT_EQ(normalize("\xC3\xA9", NormalForm::kNfd), "e\xCC\x81");
  EXPECT_EQ(normalize("\xEF\xAC\x81", NormalForm::kNfkc), "fi");
  EXPECT_EQ(normalize("\xEF\xAC\x81", NormalForm::kNfc), "\xEF\xAC\x81");
}

TEST(Properties, FollowUnicodeAtTheOddPlaces) {
  EXPECT_TRUE(is_white_space(0x85));
  EXPECT_TRUE(is_white_space(0x3000));
  EXPECT_FALSE(is_white_space(0x180E)) << "not a space since Unicode 6.3";
  EXPECT_FALSE(is_white_space(0x200B));
  EXPECT_TRUE(is_word(0x200D));
  EXPECT_TRUE(is_word(0x24B6));
  EXPECT_FALSE(is_word(0xB2));
  EXPECT_TRUE(is_numeric(0xB2));
  EXPECT_TRUE(is_punctuation('$'));
}

TEST(FindText, AgreesWithTheStandardLibrary) {
  const std::string text = "abcabcabd";
  EXPECT_EQ(find_text(text, "abd"), 6u);
  EXPECT_EQ(find_text(text, "abc", 1), 3u);
  EXPECT_EQ(find_text(text, "x"), std::string::npos);
  EXPECT_EQ(find_text(text, "", 4), 4u);
  EXPECT_EQ(find_text(text, "a", 100), std::string::npos);
}

TEST(Unicode, ClustersAreWhatAReaderTakesForOneCharacter) {
  const auto first = [](const std::string& text) { return text.substr(0, grapheme_size(text)); };
  EXPECT_EQ(first("ab"), "a");
  EXPECT_EQ(first("e\u0301\u0302x"), "e\u0301\u0302");
  EXPECT_EQ(first("\r\n\n"), "\r\n");
  EXPECT_EQ(first("\n\u0301"), "\n");
  EXPECT_EQ(first("\u1112\u1161\u11ab\u1112"), "\u1112\u1161\u11ab");
  EXPECT_EQ(first("\U0001f469\u200d\U0001f467x"), "\U0001f469\u200d\U0001f467");
  EXPECT_EQ(first("\U0001f1ec\U0001f1e7\U0001f1f0"), "\U0001f1ec\U0001f1e7");
  EXPECT_EQ(first("\u0600a"), "\u0600a");
  // Of Unicode 16 and 17, and a place without a character.
  for (const char* joined : {"a\u0897", "a\u1acf", "a\U0001e6f5"}) EXPECT_EQ(first(joined), joined);
  EXPECT_EQ(first("a\u2065"), "a");
  EXPECT_TRUE(never_one_grapheme('a', 'b'));
  EXPECT_FALSE(never_one_grapheme('a', 0x301));
  EXPECT_FALSE(never_one_grapheme(0x200D, 'a'));
}

}  // namespace
}  // namespace jige::text
