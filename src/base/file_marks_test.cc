#include "base/file_marks.h"

#include <gtest/gtest.h>

namespace jige {
namespace {

TEST(FileMarks, TellPackedFiles) {
  for (const std::string_view content : {"\x1f\x8b\x08", "PK\x03\x04\x14", "\x28\xb5\x2f\xfd\x04",
                                         "\xfd\x37zXZ", "BZh91AY&SY", "7z\xbc\xaf\x27\x1c"}) {
    EXPECT_TRUE(begins_as_packed(content)) << content;
  }
  for (const std::string_view content : {"", "\x1f", "PK and BZh", "7z", "{\"text\": 1}"}) {
    EXPECT_FALSE(begins_as_packed(content)) << content;
  }
}

TEST(FileMarks, TellTheByteOrder) {
  EXPECT_TRUE(begins_as_utf16("\xff\xfeh"));
  EXPECT_TRUE(begins_as_utf16("\xfe\xff"));
  EXPECT_FALSE(begins_as_utf16("\xef\xbb\xbf"));
}

}  // namespace
}  // namespace jige
