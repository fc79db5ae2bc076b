#include "base/ascii.h"

#include <gtest/gtest.h>

namespace jige {
namespace {

TEST(LowerAscii, ChangesLettersOfAsciiAlone) {
  EXPECT_EQ(lower_ascii("AZaz@[`{09\xC4\xC3\x84"), "azaz@[`{09\xC4\xC3\x84");
  EXPECT_EQ(lower_ascii(""), "");
}

TEST(IsAsciiAlphanumeric, HoldsForLettersAndDigitsOfAsciiAlone) {
  std::string found;
  for (int c = -128; c < 128; ++c) {
    if (is_ascii_alphanumeric(static_cast<char>(c))) found.push_back(static_cast<char>(c));
  }
  EXPECT_EQ(found, "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz");
}

}  // namespace
}  // namespace jige
