#include "formats/xxhash64.h"

#include <gtest/gtest.h>

#include <string_view>
#include <vector>

#include "formats/test_support.h"

namespace jige::formats {
namespace {

std::string hash_of(std::string_view text) { return checksum_text(xxhash64(bytes_of(text))); }

// A reproducible byte sequence: the high byte of a linear congruence.
std::vector<std::byte> ramp(size_t size) {
  std::vector<std::byte> bytes(size);
  uint64_t state = 1;
  for (std::byte& byte : bytes) {
    state = state * 6364136223846793005u + 1;
    byte = static_cast<std::byte>(state >> 56);
  }
  return bytes;
}

TEST(XxHash64, GivesTheKnownAnswers) {
  EXPECT_EQ(hash_of(""), "ef46db3751d8e999");
  EXPECT_EQ(hash_of("a"), "d24ec4f1a98c6e5b");
  EXPECT_EQ(hash_of("abc"), "44bc2cf5ad770999");
  EXPECT_EQ(hash_of("The quick brown fox jumps over the lazy dog"), "0b242d361fda71bc");
}

// Recorded from the reference library (0.8.1): every branch of the tail, with and without stripes.
TEST(XxHash64, EqualsTheReferenceAtEveryKindOfLength) {
  const std::pair<size_t, const char*> kRecorded[] = {
      {1, "db0d1b1c6ee31ae5"},   {3, "d72b73297a0cd03e"},  {4, "7a571ea8902bac14"},
      {8, "0dd0dd08d95c73d8"},   {31, "b7a8fe0624b051b8"}, {32, "2aea3153926134f9"},
      {33, "71936e10a8a02234"},  {63, "cc1e0d46dc06c35d"}, {100, "df28bfbc36a38be8"},
      {1000, "9490fc8781702904"}};
  const std::vector<std::byte> bytes = ramp(1000);
  for (const auto& [size, wanted] : kRecorded) {
    EXPECT_EQ(checksum_text(xxhash64(std::span(bytes).first(size))), wanted) << size;
  }
}

TEST(XxHash64, DoesNotDependOnHowTheBytesAreSplit) {
  const std::vector<std::byte> bytes = ramp(300);
  const uint64_t wanted = xxhash64(bytes);
  for (size_t first = 0; first <= bytes.size(); ++first) {
    XxHash64 hash;
    hash.update(bytes.data(), first);
    hash.update(bytes.data() + first, (bytes.size() - first) / 2);
    const size_t second = first + (bytes.size() - first) / 2;
    EXPECT_EQ(hash.digest(), xxhash64(std::span(bytes).first(second)));  // looking changes nothing
    hash.update(bytes.data() + second, bytes.size() - second);
    ASSERT_EQ(hash.digest(), wanted) << first;
  }
}

}  // namespace
}  // namespace jige::formats
