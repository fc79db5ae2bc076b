#include "text/newer_characters.h"

#include <gtest/gtest.h>

#include <vector>

#include "text/regex.h"
#include "text/unicode.h"

namespace jige::text {
namespace {

size_t count_matches(const char* pattern, std::string_view text) {
  const auto regex = Regex::compile(pattern, "test");
  EXPECT_TRUE(regex.has_value());
  RegexScratch scratch;
  std::vector<Range> found;
  EXPECT_TRUE(regex->find_all(text, scratch, found).has_value());
  return found.size();
}

TEST(NewerCharacters, AreShownAsOlderOnesOfTheSameLength) {
  int changed = 0;
  for (char32_t c = 0; c <= 0x10FFFF; ++c) {
    const char32_t older = older_character(c);
    if (older == c) continue;
    ++changed;
    ASSERT_EQ(to_utf8(older).size(), to_utf8(c).size()) << static_cast<uint32_t>(c);
    ASSERT_EQ(older_character(older), older) << static_cast<uint32_t>(c);
  }
  EXPECT_EQ(changed, 10302);
}

TEST(NewerCharacters, KeepTheirPlacesInTheText) {
  std::string changed = "as before";
  EXPECT_FALSE(show_older_characters("plain \xC3\xA9 \xE7\x8C\xAB \xF0\x9F\x98\x80", changed));
  EXPECT_EQ(changed, "as before");
  const std::string text = "a" + to_utf8(0x31ADE) + "b" + to_utf8(0x897) + "\xE7\x8C\xAB";
  ASSERT_TRUE(show_older_characters(text, changed));
  EXPECT_EQ(changed, "a" + to_utf8(0x20000) + "b" + to_utf8(0x898) + "\xE7\x8C\xAB");
}

TEST(NewerCharacters, HaveTheCategoriesOfUnicode16) {
  for (const auto& [c, pattern] : std::vector<std::pair<char32_t, const char*>>{
           {0x31350, R"(\p{Lo})"},
           {0x2EE5D, R"(\p{Han})"},
           {0x10D50, R"(\p{Lu})"},
           {0xA7DB, R"(\p{Ll})"},
           {0x1E06D, R"(\p{Lm})"},
           {0x897, R"(\p{Mn})"},
           {0x1171E, R"(\p{Mc})"},
           {0x1E4F0, R"(\p{Nd})"},
           {0x1D2C0, R"(\p{No})"},
           {0x11F4F, R"(\p{Po})"},
           {0x10D6E, R"(\p{Pd})"},
           {0x10D8E, R"(\p{Sm})"},
           {0x1FADF, R"(\p{So})"},
           {0x13439, R"(\p{Cf})"},
       }) {
    EXPECT_EQ(count_matches(pattern, to_utf8(c)), 1u) << static_cast<uint32_t>(c);
    EXPECT_EQ(count_matches(R"(\p{Cn})", to_utf8(c)), 0u) << static_cast<uint32_t>(c);
  }
  EXPECT_TRUE(is_numeric(0x1E5F1));
  EXPECT_TRUE(is_letter(0x11BC0));
  EXPECT_TRUE(is_mark(0x113CE));
}

TEST(NewerCharacters, StandInOneWordWithTheirKind) {
  EXPECT_EQ(count_matches(R"(\p{L}+|\s+)", "end" + to_utf8(0x31ADE) + "x y"), 3u);
}

TEST(NewerMarks, AreLeftAloneByNormalForms) {
  const std::string circumflex = "\xCC\x82";  // class 230
  const std::string below = "\xCC\xA3";       // class 220
  const std::string newer = to_utf8(0x898);   // of class 230 since Unicode 14
  for (const NormalForm form : {NormalForm::kNfd, NormalForm::kNfkd}) {
    EXPECT_EQ(normalize("a" + circumflex + below, form), "a" + below + circumflex);
    EXPECT_EQ(normalize("a" + newer + below, form), "a" + newer + below);
    EXPECT_EQ(normalize(to_utf8(0x11938), form), to_utf8(0x11938));
  }
  EXPECT_EQ(normalize("o" + newer + circumflex, NormalForm::kNfc), "o" + newer + circumflex);
  EXPECT_EQ(normalize("o" + circumflex + newer, NormalForm::kNfc), "\xC3\xB4" + newer);
  const std::string parts = to_utf8(0x11935) + to_utf8(0x11930);
  EXPECT_EQ(normalize(parts, NormalForm::kNfc), parts);
  for (const char32_t c : {0x32FF, 0xAB69, 0x107AB, 0x1FBF9}) {
    EXPECT_EQ(normalize(to_utf8(c), NormalForm::kNfkc), to_utf8(c)) << static_cast<uint32_t>(c);
  }
}

TEST(NewerMarks, AreNotStripped) {
  EXPECT_EQ(strip_marks("e\xCC\x81" + to_utf8(0x1ABF)), "e" + to_utf8(0x1ABF));
  EXPECT_EQ(strip_marks("e" + to_utf8(0x1CF2)), "e") << "a mark then, a letter now";
}

TEST(NewerPunctuation, IsNoPunctuation) {
  EXPECT_TRUE(is_punctuation(0x2E42));
  EXPECT_FALSE(is_punctuation(0x2E43));
  EXPECT_FALSE(is_punctuation(0x113D4));
  EXPECT_TRUE(is_punctuation(0x166D)) << "a symbol since Unicode 12";
}

}  // namespace
}  // namespace jige::text
