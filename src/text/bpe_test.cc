#include "text/bpe.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "base/rng.h"

namespace jige::text {
namespace {

using Merges = std::vector<std::pair<std::string, std::string>>;

struct Model {
  std::shared_ptr<const Vocabulary> vocabulary;
  BpeModel bpe;
};

Model make(std::vector<std::string> tokens, const Merges& merges, BpeOptions options = {}) {
  for (const auto& [left, right] : merges) tokens.push_back(left + right);
  std::vector<std::pair<std::string, int64_t>> entries;
  for (size_t i = 0; i < tokens.size(); ++i) entries.emplace_back(tokens[i], i);
  auto vocabulary = std::make_shared<const Vocabulary>(*Vocabulary::create(entries, "test"));
  TextPairs pairs;
  for (const auto& [left, right] : merges) pairs.add(left, right);
  auto bpe = BpeModel::create(vocabulary, pairs, std::move(options), "test");
  EXPECT_TRUE(bpe.has_value());
  return {vocabulary, std::move(*bpe)};
}

std::vector<std::string> cut(const Model& model, std::string_view word) {
  BpeScratch scratch;
  std::vector<int32_t> ids;
  const auto status = model.bpe.encode(word, scratch, ids);
  EXPECT_TRUE(status.has_value()) << status.error().message;
  std::vector<std::string> tokens;
  for (const int32_t id : ids) tokens.push_back(model.vocabulary->token(id));
  return tokens;
}

// The definition: merge the pair of lowest rank, leftmost first, until there is none.
std::vector<std::string> naive(const Merges& merges, std::string_view word) {
  std::map<std::pair<std::string, std::string>, size_t> ranks;
  for (size_t i = 0; i < merges.size(); ++i) ranks[merges[i]] = i;
  std::vector<std::string> parts;
  for (const char c : word) parts.emplace_back(1, c);
  for (;;) {
    size_t best = SIZE_MAX, at = 0;
    for (size_t i = 0; i + 1 < parts.size(); ++i) {
      const auto it = ranks.find({parts[i], parts[i + 1]});
      if (it != ranks.end() && it->second < best) {
        best = it->second;
        at = i;
      }
    }
    if (best == SIZE_MAX) return parts;
    parts[at] += parts[at + 1];
    parts.erase(parts.begin() + static_cast<std::ptrdiff_t>(at) + 1);
  }
}

TEST(Bpe, MergesTheLowestRankFirst) {
  const Model model = make({"a", "b", "c"}, {{"b", "c"}, {"a", "b"}, {"a", "bc"}});
  EXPECT_EQ(cut(model, "abc"), (std::vector<std::string>{"abc"}));
  EXPECT_EQ(cut(model, "abab"), (std::vector<std::string>{"ab", "ab"}));
}

TEST(Bpe, AgreesWithTheDefinitionOnRandomMergesAndWords) {
  Rng rng(derive_key(11, "bpe"));
  for (int round = 0; round < 30; ++round) {
    std::vector<std::string> known = {"a", "b", "c"};
    Merges merges;
    for (int i = 0; i < 25; ++i) {
      const auto& left = known[rng.below(known.size())];
      const auto& right = known[rng.below(known.size())];
      if (left.size() + right.size() > 12) continue;
      if (std::find(known.begin(), known.end(), left + right) != known.end()) continue;
      merges.emplace_back(left, right);
      known.push_back(left + right);
    }
    const Model model = make({"a", "b", "c"}, merges);
    for (const size_t size : {1, 2, 7, 39, 40, 41, 42, 200}) {
      std::string word;
      for (size_t i = 0; i < size; ++i) word.push_back(static_cast<char>('a' + rng.below(3)));
      EXPECT_EQ(cut(model, word), naive(merges, word)) << word;
    }
  }
}

TEST(Bpe, EncodesAHugeWordInLessThanQuadraticTime) {
  Merges merges = {{"a", "a"}, {"aa", "aa"}, {"aaaa", "aaaa"}};
  const Model model = make({"a", "b"}, merges);
  const auto tokens = cut(model, std::string(1 << 18, 'a'));
  EXPECT_EQ(tokens.size(), (1u << 18) / 8);
}

TEST(Bpe, FallsBackToBytesThenToTheUnknownToken) {
  std::vector<std::string> tokens = {"<unk>", "a"};
  for (int byte = 0; byte < 256; ++byte) tokens.push_back(fmt::format("<0x{:02X}>", byte));
  const Model bytes = make(tokens, {}, {.byte_fallback = true, .unk_token = "<unk>"});
  EXPECT_EQ(cut(bytes, "a\xC3\xA9"), (std::vector<std::string>{"a", "<0xC3>", "<0xA9>"}));
  const Model fused = make({"<unk>", "a"}, {}, {.fuse_unk = true, .unk_token = "<unk>"});
  EXPECT_EQ(cut(fused, "xya z"), (std::vector<std::string>{"<unk>", "a", "<unk>"}));
  const Model single = make({"<unk>", "a"}, {}, {.unk_token = "<unk>"});
  EXPECT_EQ(cut(single, "xya"), (std::vector<std::string>{"<unk>", "<unk>", "a"}));
  const Model none = make({"a"}, {});
  EXPECT_EQ(cut(none, "xay"), (std::vector<std::string>{"a"}));
}

TEST(Bpe, SaysWhenTheUnknownTokenIsMissing) {
  const Model model = make({"a"}, {}, {.unk_token = "[UNK]"});
  BpeScratch scratch;
  std::vector<int32_t> ids;
  const auto status = model.bpe.encode("ab", scratch, ids);
  ASSERT_FALSE(status.has_value());
  EXPECT_EQ(status.error().code, Code::kCorrupt);
}

TEST(Bpe, IgnoresMergesOnlyForPlainWords) {
  Model model = make({"a", "b", "ab", "ba"}, {}, {.ignore_merges = true});
  EXPECT_EQ(cut(model, "ab"), (std::vector<std::string>{"ab"}));
  model.bpe.forbid(model.vocabulary->find("ba"));
  EXPECT_EQ(cut(model, "ba"), (std::vector<std::string>{"b", "a"}));
}

TEST(Bpe, CutsAtSpaceMarksOnlyWhereNoMergeCrosses) {
  const std::string mark = "\xE2\x96\x81";
  const Model safe = make({mark, "a", "b"}, {{mark, "a"}, {mark, mark}, {"a", "b"}});
  EXPECT_EQ(cut(safe, mark + "ab" + mark + mark + "a"),
            (std::vector<std::string>{mark + "a", "b", mark, mark + "a"}));
  const Model crossing = make({mark, "a", "b"}, {{"a", mark}});
  EXPECT_EQ(cut(crossing, "ba" + mark + "a"), (std::vector<std::string>{"b", "a" + mark, "a"}));
}

// A model that has an unknown token may cut, one that leaves characters out may not.
TEST(Bpe, CutsAtSpaceMarksChangeNoId) {
  const std::string mark = "\xE2\x96\x81";
  const std::vector<std::string> letters = {mark, ">", "<", "/", "a", "b", "<unk>"};
  const Merges merges = {{"<", "/"},  {mark, "</"}, {">", mark + "</"}, {mark, mark},
                         {mark, "a"}, {"a", "b"},   {"a", ">"},         {mark + "a", "b"}};
  const Model cutting = make(letters, merges, {.unk_token = "<unk>"});
  const Model whole = make(letters, merges);
  Rng rng(derive_key(7, "cuts"));
  for (int round = 0; round < 3000; ++round) {
    std::string text;
    for (uint64_t left = rng.below(12); left > 0; --left) text += letters[rng.below(6)];
    EXPECT_EQ(cut(cutting, text), cut(whole, text)) << text;
  }
  EXPECT_EQ(cut(cutting, "a>" + mark + "</a" + mark + "a"),
            (std::vector<std::string>{"a", ">" + mark + "</", "a", mark + "a"}));
}

TEST(Bpe, RefusesMergesOfUnknownTokens) {
  auto vocabulary =
      std::make_shared<const Vocabulary>(*Vocabulary::create({{"a", 0}, {"b", 1}}, "test"));
  TextPairs merges;
  merges.add("a", "b");
  const auto model = BpeModel::create(vocabulary, merges, {}, "tokenizer.json: model");
  ASSERT_FALSE(model.has_value());
  EXPECT_EQ(model.error().code, Code::kCorrupt);
  EXPECT_NE(model.error().message.find("\"ab\""), std::string::npos) << model.error().message;
}

// A text is cut before space marks only where nobody can tell.
TEST(Bpe, SpaceMarksMeetWhereTheCharactersBetweenThemAreLeftOut) {
  const Model model = make({"▁", "a"}, {{"▁", "▁"}});
  EXPECT_EQ(cut(model, "a▁xyz▁a"), (std::vector<std::string>{"a", "▁▁", "a"}));
}

TEST(Bpe, APartOfAWordIsNotLookedUpAsAWord) {
  const Model model =
      make({"▁", "a", "b", "▁ab", "<unk>"}, {}, {.ignore_merges = true, .unk_token = "<unk>"});
  EXPECT_EQ(cut(model, "a▁ab"), (std::vector<std::string>{"a", "▁", "a", "b"}));
  EXPECT_EQ(cut(model, "▁ab"), (std::vector<std::string>{"▁ab"}));
}

TEST(WordCache, KnowsAllWordsWhileItGrows) {
  WordCache cache;
  for (int32_t i = 0; i < 20000; ++i) cache.put("word" + std::to_string(i), std::vector{i});
  for (int32_t i = 0; i < 20000; ++i) {
    const auto found = cache.find("word" + std::to_string(i));
    ASSERT_TRUE(found && std::ranges::equal(*found, std::vector{i})) << i;
  }
  EXPECT_FALSE(cache.find("word20000"));
}

TEST(WordCache, ForgetsWhenFullAndNeverLies) {
  WordCache cache;
  for (int i = 0; i < 100000; ++i) {
    const std::string word = "word" + std::to_string(i);
    const std::vector<int32_t> ids = {i, i + 1};
    cache.put(word, ids);
    const auto found = cache.find(word);
    ASSERT_TRUE(found.has_value());
    ASSERT_EQ(std::vector<int32_t>(found->begin(), found->end()), ids);
  }
  EXPECT_FALSE(cache.find("word0").has_value());
  EXPECT_FALSE(cache.find(std::string(1000, 'x')).has_value());
}

}  // namespace
}  // namespace jige::text
