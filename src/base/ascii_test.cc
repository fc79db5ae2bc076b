#include "base/ascii.h"

#include <gtest/gtest.h>

namespace jige {
namespace {

TEST(LowerAscii, ChangesLettersOfAsciiAlone) {
  EXPECT_EQ(lower_ascii("AZaz@[`{09\xC4\xC3\x84"), "azaz@[`{09\xC4\xC3\x84");
  EXPECT_EQ(lower_ascii(""), "");
}

}  // namespace
}  // namespace jige
