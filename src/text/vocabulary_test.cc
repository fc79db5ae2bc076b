#include "text/vocabulary.h"

#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <utility>
#include <vector>

namespace jige::text {
namespace {

TEST(Vocabulary, FindsTextsByThemselvesAndTogether) {
  std::vector<std::pair<std::string, int64_t>> entries;
  for (int64_t id = 0; id < 3000; ++id) {
    entries.emplace_back(std::string(static_cast<size_t>(id % 40), 'x') + std::to_string(id), id);
  }
  const auto vocabulary = Vocabulary::create(entries, "test");
  ASSERT_TRUE(vocabulary.has_value());
  std::vector<std::string_view> texts = {"", "not there", "x"};
  std::vector<int32_t> wanted = {-1, -1, -1};
  for (const auto& [token, id] : entries) {
    EXPECT_EQ(vocabulary->find(token), id);
    EXPECT_EQ(vocabulary->token(static_cast<int32_t>(id)), token);
    texts.push_back(token);
    wanted.push_back(static_cast<int32_t>(id));
  }
  std::vector<int32_t> ids(texts.size());
  vocabulary->find_all(texts, ids);
  EXPECT_EQ(ids, wanted);
}

TEST(Vocabulary, KeepsTheLastIdOfATextAndTheLastTextOfAnId) {
  const auto vocabulary = Vocabulary::create({{"a", 3}, {"b", 1}, {"a", 5}, {"c", 1}}, "test");
  ASSERT_TRUE(vocabulary.has_value());
  EXPECT_EQ(vocabulary->find("a"), 5);
  EXPECT_EQ(vocabulary->find("b"), 1);
  EXPECT_EQ(vocabulary->token(1), "c");
  EXPECT_EQ(vocabulary->size(), 6);
  EXPECT_FALSE(vocabulary->contains(0));
  EXPECT_FALSE(vocabulary->contains(6));
}

TEST(Vocabulary, WithoutEntriesFindsNothing) {
  const auto vocabulary = Vocabulary::create({}, "test");
  ASSERT_TRUE(vocabulary.has_value());
  EXPECT_EQ(vocabulary->find("a"), -1);
  EXPECT_EQ(vocabulary->size(), 0);
}

// A second block of eight bytes that is what the hash is behind the first makes it zero.
TEST(Vocabulary, RefusesTextsMadeToFallOnTheSameSlots) {
  std::vector<std::pair<std::string, int64_t>> entries;
  for (uint64_t first = 0; first < 5000; ++first) {
    const uint64_t second = mix(0x9E3779B97F4A7C15ull ^ 16 ^ first, 0xD6E8FEB86659FD93ull);
    std::string text(16, '\0');
    std::memcpy(text.data(), &first, 8);
    std::memcpy(text.data() + 8, &second, 8);
    entries.emplace_back(text, static_cast<int64_t>(first));
  }
  ASSERT_EQ(hash_bytes(entries[0].first), hash_bytes(entries[1].first));
  const auto made = Vocabulary::create(entries, "tokenizer.json: model");
  ASSERT_FALSE(made.has_value());
  EXPECT_EQ(made.error().code, Code::kCorrupt);
  EXPECT_NE(made.error().message.find("tokenizer.json"), std::string::npos);
  entries.resize(500);
  EXPECT_TRUE(Vocabulary::create(entries, "test").has_value());
}

}  // namespace
}  // namespace jige::text
