#include "text/unigram.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "base/rng.h"
#include "text/unicode.h"

namespace jige::text {
namespace {

using Pieces = std::vector<std::pair<std::string, double>>;

struct ScoredModel {
  std::shared_ptr<const Vocabulary> vocabulary;
  UnigramModel unigram;
};

Result<ScoredModel> try_scored(const Pieces& pieces, UnigramOptions options) {
  std::vector<std::pair<std::string, int64_t>> entries;
  std::vector<double> scores;
  for (const auto& [text, score] : pieces) {
    entries.emplace_back(text, entries.size());
    scores.push_back(score);
  }
  auto vocabulary = std::make_shared<const Vocabulary>(*Vocabulary::create(entries, "test"));
  JIGE_TRY(UnigramModel unigram, UnigramModel::create(vocabulary, scores, options, "test"));
  return ScoredModel{vocabulary, std::move(unigram)};
}

ScoredModel scored(const Pieces& pieces, UnigramOptions options = {.unk_id = 0}) {
  auto model = try_scored(pieces, options);
  EXPECT_TRUE(model.has_value()) << model.error().message;
  return std::move(*model);
}

std::vector<int32_t> scored_ids(const ScoredModel& model, std::string_view word) {
  UnigramScratch scratch;
  std::vector<int32_t> ids;
  const auto status = model.unigram.encode(word, scratch, ids);
  EXPECT_TRUE(status.has_value()) << status.error().message;
  return ids;
}

// The tokens with a bar between them; an unknown one is "?".
std::string scored_cut(const ScoredModel& model, std::string_view word) {
  std::string text;
  for (const int32_t id : scored_ids(model, word)) {
    text += (text.empty() ? "" : "|") + model.vocabulary->token(id);
  }
  return text;
}

TEST(Unigram, TakesTheLargestSumOfScores) {
  const ScoredModel model =
      scored({{"?", 0}, {"a", -1}, {"b", -1}, {"ab", -3}, {"abc", -9}, {"c", -2}});
  EXPECT_EQ(scored_cut(model, "abab"), "a|b|a|b");
  EXPECT_EQ(scored_cut(model, "abc"), "a|b|c");
  EXPECT_EQ(scored_cut(model, ""), "");
}

TEST(Unigram, OfEqualSumsTheLongestLastPieceCounts) {
  const ScoredModel model = scored({{"?", 0}, {"a", -1}, {"aa", -2}, {"aaa", -3}});
  EXPECT_EQ(scored_cut(model, "aa"), "aa");
  EXPECT_EQ(scored_cut(model, "aaaa"), "a|aaa");
  EXPECT_EQ(scored_cut(model, "aaaaaa"), "aaa|aaa");
}

TEST(Unigram, UnknownCharactersAreOneTokenOrTheirBytes) {
  const Pieces pieces = {{"?", 0},      {"a", -1},     {"<0xC3>", 0},
                         {"<0xA9>", 0}, {"<0x78>", 0}, {"xyz", -40}};
  const ScoredModel plain = scored(pieces);
  EXPECT_EQ(scored_cut(plain, "a\u00e9xa\u00e9"), "a|?|a|?");
  EXPECT_EQ(scored_cut(plain, "xyz"), "xyz") << "a run that is a piece whose score is too low";
  EXPECT_EQ(scored_cut(plain, "xyzx"), "xyz|?") << "lowest score -40: unknown ones cost 50 each";
  const ScoredModel bytes = scored(pieces, {.unk_id = 0, .byte_fallback = true});
  EXPECT_EQ(scored_cut(bytes, "a\u00e9xa"), "a|<0xC3>|<0xA9>|<0x78>|a");
  EXPECT_EQ(scored_cut(bytes, "\u00e9ya"), "?|a") << "no token for y: all of the run is unknown";
}

TEST(Unigram, WithoutAnUnknownTokenItSaysSo) {
  const ScoredModel model = scored({{"a", -1}, {"ab", -2}, {"ba", -1}}, {});
  EXPECT_EQ(scored_cut(model, "aab"), "a|ab");
  UnigramScratch scratch;
  std::vector<int32_t> ids;
  // As in the library, also where a later piece would do without.
  for (const char* word : {"b", "ba"}) {
    const auto status = model.unigram.encode(word, scratch, ids);
    ASSERT_FALSE(status.has_value()) << word;
    EXPECT_EQ(status.error().code, Code::kCorrupt);
    EXPECT_NE(status.error().message.find("unk_id"), std::string::npos);
  }
}

TEST(Unigram, ForbiddenPiecesComeFromNoText) {
  ScoredModel model = scored({{"?", 0}, {"<s>", 0}, {"<", -9}, {"s", -9}, {">", -9}, {"@", 0}});
  EXPECT_EQ(scored_cut(model, "<s>@"), "<s>|@");
  model.unigram.forbid(1);
  model.unigram.forbid(5);  // one character, which text may have
  EXPECT_EQ(scored_cut(model, "<s>@"), "<|s|>|@");
  ScoredModel run = scored({{"??", 0}, {"xy", -1}, {"a", -1}});
  run.unigram.forbid(1);
  EXPECT_EQ(scored_cut(run, "xya"), "??|a") << "nor from a run of unknown characters";
}

TEST(Unigram, OfAPieceThatStandsTwiceTheLastCounts) {
  EXPECT_EQ(scored_ids(scored({{"?", 0}, {"ab", 9}, {"ab", -9}, {"a", -1}, {"b", -1}}), "ab"),
            (std::vector<int32_t>{3, 4}));
}

TEST(Unigram, RefusesScoresThatDoNotFit) {
  const auto vocabulary = std::make_shared<const Vocabulary>(*Vocabulary::create({{"a", 0}}, "t"));
  EXPECT_EQ(UnigramModel::create(vocabulary, {}, {}, "t").error().code, Code::kCorrupt);
  EXPECT_EQ(UnigramModel::create(vocabulary, {1, 2}, {}, "t").error().code, Code::kCorrupt);
  EXPECT_EQ(UnigramModel::create(vocabulary, {1}, {.unk_id = 1}, "t").error().code, Code::kCorrupt);
  EXPECT_TRUE(try_scored({{std::string(4096, 'a'), 0}}, {}).has_value());
  EXPECT_EQ(try_scored({{std::string(4097, 'a'), 0}}, {}).error().code, Code::kUnsupported);
}

// The definition, backwards: the best sum of what ends at each character, by trying every piece.
std::vector<int32_t> naive_scored(const Pieces& pieces, const std::string& word) {
  double lowest = pieces[0].second;
  std::map<std::string, int32_t> ids;
  for (size_t i = 0; i < pieces.size(); ++i) {
    ids[pieces[i].first] = static_cast<int32_t>(i);
    lowest = std::min(lowest, pieces[i].second);
  }
  struct Way {
    double sum = 0;
    size_t begin = 0;
    int32_t id = -1;
  };
  std::vector<Way> ways(word.size() + 1);
  for (size_t end = 1; end <= word.size(); ++end) {
    for (size_t begin = 0; begin < end; ++begin) {
      const auto piece = ids.find(word.substr(begin, end - begin));
      const bool unknown = piece == ids.end();
      if (unknown && end - begin > 1) continue;
      const int32_t id = unknown ? 0 : piece->second;
      const double score = unknown ? lowest - 10 : pieces[static_cast<size_t>(id)].second;
      const double sum = ways[begin].sum + score;
      if (ways[end].id < 0 || sum > ways[end].sum) ways[end] = {sum, begin, id};
    }
  }
  std::vector<int32_t> found;
  for (size_t end = word.size(); end > 0; end = ways[end].begin) {
    if (ways[end].id == 0 && !found.empty() && found.back() == 0) continue;
    found.push_back(ways[end].id);
  }
  return {found.rbegin(), found.rend()};
}

TEST(Unigram, EqualsTheDefinition) {
  Rng rng(derive_key(3, "unigram"));
  for (int round = 0; round < 60; ++round) {
    Pieces pieces = {{"#", -3}};
    // Few different scores, so that many sums are equal.
    for (uint64_t i = 3 + rng.below(12); i > 0; --i) {
      std::string text;
      for (uint64_t size = 1 + rng.below(4); size > 0; --size) {
        text += static_cast<char>('a' + rng.below(3));
      }
      pieces.emplace_back(text, -0.1 * static_cast<double>(1 + rng.below(9)));
    }
    const ScoredModel model = scored(pieces);
    for (int i = 0; i < 20; ++i) {
      std::string word;
      for (uint64_t size = rng.below(30); size > 0; --size) {
        word += static_cast<char>('a' + rng.below(3));
      }
      std::vector<int32_t> expected = naive_scored(pieces, word);
      EXPECT_EQ(scored_ids(model, word), expected) << "round " << round << ": " << word;
    }
  }
}

}  // namespace
}  // namespace jige::text
