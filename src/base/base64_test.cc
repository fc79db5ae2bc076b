#include "base/base64.h"

#include <gtest/gtest.h>

namespace jige {
namespace {

TEST(Base64, HasTheExamplesOfTheRfc) {
  EXPECT_EQ(base64_text(""), "");
  EXPECT_EQ(base64_text("f"), "Zg==");
  EXPECT_EQ(base64_text("fo"), "Zm8=");
  EXPECT_EQ(base64_text("foo"), "Zm9v");
  EXPECT_EQ(base64_text("foob"), "Zm9vYg==");
  EXPECT_EQ(base64_text("fooba"), "Zm9vYmE=");
  EXPECT_EQ(base64_text("foobar"), "Zm9vYmFy");
  EXPECT_EQ(base64_text("\xff\xfe\xfb"), "//77");
}

TEST(Base64, GivesBackEveryText) {
  std::string bytes;
  for (int i = 0; i < 300; ++i) {
    EXPECT_EQ(base64_bytes(base64_text(bytes)), bytes);
    bytes += static_cast<char>(i * 7);
  }
}

TEST(Base64, TakesNoOtherTexts) {
  for (const char* text : {"Z", "Zg", "Zg=", "Zg==Zg==", "Z===", "====", "Zh==", "Zm9=", "Zm9v\n",
                           "Zm 9", "Zm-9", "Zg=A", "\xC3\xA9zz"}) {
    EXPECT_EQ(base64_bytes(text), std::nullopt) << text;
  }
}

}  // namespace
}  // namespace jige
