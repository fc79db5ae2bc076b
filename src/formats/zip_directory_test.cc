#include "formats/zip_directory.h"

#include <gtest/gtest.h>

#include "formats/test_support.h"
#include "formats/torch_test_support.h"

namespace jige::formats {
namespace {

using std::string_view_literals::operator""sv;

Result<std::vector<ZipEntry>> read_archive(std::string_view archive) {
  return read_zip_directory(bytes_of(archive), "file");
}

ZipBuilder small_archive(bool wide) {
  ZipBuilder zip(wide);
  return zip.add("a", "first").add("folder/b", "").add("c", "packed", 8);
}

void expect_small_archive(std::string_view archive) {
  ASSERT_TRUE(is_zip(bytes_of(archive)));
  const auto entries = read_archive(archive);
  ASSERT_TRUE(entries) << entries.error().message;
  ASSERT_EQ(entries->size(), 3u);
  EXPECT_EQ((*entries)[0].name, "a");
  EXPECT_EQ(archive.substr((*entries)[0].offset, (*entries)[0].bytes), "first");
  EXPECT_TRUE((*entries)[0].stored);
  EXPECT_EQ((*entries)[1].name, "folder/b");
  EXPECT_EQ((*entries)[1].bytes, 0u);
  EXPECT_FALSE((*entries)[2].stored);
}

TEST(ZipDirectory, FindsEntriesOfBothWidths) {
  for (const bool wide : {false, true}) {
    expect_small_archive(small_archive(wide).bytes());
    expect_small_archive(small_archive(wide).bytes("a comment"));
    // A comment that looks like an end record whose comment ends elsewhere.
    expect_small_archive(small_archive(wide).bytes("PK\5\6" + std::string(18, '\7')));
  }
}

TEST(ZipDirectory, RefusesWhatContradictsItself) {
  const std::string good = small_archive(false).bytes();
  const size_t entry = good.find("PK\1\2");
  const size_t end = good.find("PK\5\6");
  const auto changed = [&](size_t at, std::string_view bytes) {
    return std::string(good).replace(at, bytes.size(), bytes);
  };
  const std::pair<std::string, const char*> kLies[] = {
      {"", "without an end record"},
      {good.substr(0, good.size() - 1), "without an end record"},
      {changed(end + 10, "\x04"), "entry of the directory has 46 bytes"},
      {changed(end + 12, "\xff\xff"), "says that its directory has"},
      {changed(end + 16, "\xff\xff"), "says that its directory has"},
      {changed(end + 16, "\x01"), "has no entry at byte"},
      {changed(entry, "QK"), "has no entry at byte"},
      {changed(entry + 20, "\x06"), "entry \"a\" is stored as 6 bytes and has 5"},
      {changed(entry + 20, "\xff\xff\0\0\xff\xff"sv), "entry \"a\" has 65535 bytes"},
      {changed(entry + 20, "\xff\xff\xff\xff\xff\xff\xff\xff"), "lacks its numbers of 64 bits"},
      {changed(entry + 28, "\xff\xff"), "the name of an entry has 65535 bytes"},
      {changed(entry + 30, "\xff\xff"), "the extra fields of an entry has 65535 bytes"},
      {changed(entry + 32, "\xff\xff"), "the comment of an entry has 65535 bytes"},
      {changed(entry + 42, "\x01"), "entry \"a\" is said to be at byte 1"},
      {changed(entry + 42, "\xff\xff\xff"), "entry \"a\" is said to be at byte 16777215"},
      {changed(26, "\xff\xff"), "entry \"a\" has 5 bytes from byte"},
  };
  for (const auto& [archive, words] : kLies) {
    EXPECT_FAILS_WITH(read_archive(archive), Code::kCorrupt, words);
    EXPECT_FAILS_WITH(read_archive(archive), Code::kCorrupt, "file");
  }
  EXPECT_FAILS_WITH(read_archive(changed(end + 4, "\x01")), Code::kUnsupported, "several files");
  const auto encrypted = read_archive(changed(entry + 8, "\x01"));
  ASSERT_TRUE(encrypted);
  EXPECT_FALSE((*encrypted)[0].stored);
}

TEST(ZipDirectory, RefusesNumbersOf64BitsThatContradictTheFile) {
  const std::string good = small_archive(true).bytes();
  const size_t end = good.find("PK\6\6");
  const size_t locator = good.find("PK\6\7");
  const auto changed = [&](size_t at, std::string_view bytes) {
    return std::string(good).replace(at, bytes.size(), bytes);
  };
  const std::string_view ones = "\xff\xff\xff\xff\xff\xff\xff\xff";
  EXPECT_FAILS_WITH(read_archive(changed(locator + 8, "\x01")), Code::kCorrupt,
                    "no end record at byte");
  EXPECT_FAILS_WITH(read_archive(changed(locator + 8, ones)), Code::kCorrupt,
                    "the end record of 64 bits has 56 bytes");
  EXPECT_FAILS_WITH(read_archive(changed(end + 32, ones)), Code::kCorrupt,
                    "names 18446744073709551615 entries");
  EXPECT_FAILS_WITH(read_archive(changed(end + 40, ones)), Code::kCorrupt, "its directory has");
  EXPECT_FAILS_WITH(read_archive(changed(end + 48, ones)), Code::kCorrupt, "its directory has");
  // The extra field of the first entry: its size, then three numbers.
  const size_t field = good.find("PK\1\2") + 46 + 1 + 5;
  EXPECT_FAILS_WITH(read_archive(changed(field + 2, "\x10")), Code::kCorrupt,
                    "entry \"a\" lacks its numbers of 64 bits");
  EXPECT_FAILS_WITH(read_archive(changed(field + 20, ones)), Code::kCorrupt,
                    "entry \"a\" is said to be at byte 18446744073709551615");
  const std::string both = std::string(ones) + std::string(ones);
  EXPECT_FAILS_WITH(read_archive(changed(field + 4, both)), Code::kCorrupt,
                    "entry \"a\" has 18446744073709551615 bytes");
}

}  // namespace
}  // namespace jige::formats
