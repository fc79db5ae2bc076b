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

}  // namespace
}  // namespace jige
