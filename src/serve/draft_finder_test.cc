#include "serve/draft_finder.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "base/rng.h"

namespace jige::serve {
namespace {

std::vector<int32_t> tokens_of(const std::string& text) { return {text.begin(), text.end()}; }

// What is drafted behind a text, by a finder that has seen it grow.
std::string drafted(const std::string& prompt, const std::string& generated, int32_t count) {
  const std::vector<int32_t> before = tokens_of(prompt);
  const std::vector<int32_t> behind = tokens_of(generated);
  DraftFinder finder(1000);
  for (size_t i = 0; i <= behind.size(); ++i) {
    finder.follow({before, std::span(behind).first(i)});
  }
  if (finder.equal_tokens() == 0) return "none";
  std::vector<int32_t> draft;
  finder.draft({before, behind}, count, draft);
  return {draft.begin(), draft.end()};
}

TEST(DraftFinder, CopiesWhatFollowedTheLatestOccurrence) {
  EXPECT_EQ(drafted("one two three. ", "one t", 6), "wo thr");
  EXPECT_EQ(drafted("abcdX abcdY ", "abcd", 1), "Y");
  EXPECT_EQ(drafted("the start", "", 3), "none");
  EXPECT_EQ(drafted("abcdefgh", "zb", 3), "none");
  // A pair is enough where nothing longer is known; what was generated counts too.
  EXPECT_EQ(drafted("..", "xyz, 12xy", 3), "z, ");
  EXPECT_EQ(drafted("a", "", 3), "none");
}

TEST(DraftFinder, ALongerMatchGoesBeforeALaterOne) {
  EXPECT_EQ(drafted("abcdP  cdQ ", "abcd", 1), "P");
  EXPECT_EQ(drafted("abcdP  cdQ ", "zzcd", 1), "Q");
}

TEST(DraftFinder, ADraftGoesOnWithItself) {
  EXPECT_EQ(drafted("", "xyzxyzx", 10), "yzxyzxyzxy");
  EXPECT_EQ(drafted("aaaaa", "", 4), "aaaa");
}

TEST(DraftFinder, DraftsOnlyWhatReallyFollowedTheSameTokens) {
  Rng rng(derive_key(1, "draft finder"));
  // More n-grams than slots, so that entries are overwritten all the time.
  DraftFinder finder(64);
  std::vector<int32_t> tokens;
  int found = 0;
  for (int i = 0; i < 5000; ++i) {
    tokens.push_back(static_cast<int32_t>(rng.below(12)));
    const size_t cut = tokens.size() / 3;
    const TokenSequence sequence{std::span(tokens).first(cut), std::span(tokens).subspan(cut)};
    finder.follow(sequence);
    if (finder.equal_tokens() == 0) continue;
    ++found;
    std::vector<int32_t> draft;
    finder.draft(sequence, 3, draft);
    std::vector<int32_t> wanted(tokens.end() - static_cast<std::ptrdiff_t>(finder.equal_tokens()),
                                tokens.end());
    wanted.push_back(draft[0]);
    EXPECT_NE(std::search(tokens.begin(), tokens.end(), wanted.begin(), wanted.end()), tokens.end())
        << "at " << i;
  }
  EXPECT_GT(found, 100);
}

TEST(DraftFinder, CountsEqualTokens) {
  for (const auto& [text, equal] : {std::pair<std::string, size_t>{"abX ab", 2},
                                    {"abcX abc", 3},
                                    {"abcdeX abcde", 5},
                                    {"0123456X 0123456", 7},
                                    {"-012345678X-012345678", 8},
                                    {"ababab", 4}}) {
    const std::vector<int32_t> tokens = tokens_of(text);
    DraftFinder finder(100);
    finder.follow({tokens, {}});
    EXPECT_EQ(finder.equal_tokens(), equal) << text;
  }
}

TEST(DraftFinder, AClearedFinderKnowsNothing) {
  const std::vector<int32_t> tokens = tokens_of("abcabcabc");
  DraftFinder finder(100);
  finder.follow({tokens, {}});
  EXPECT_GT(finder.equal_tokens(), 0u);
  finder.clear();
  EXPECT_EQ(finder.equal_tokens(), 0u);
  finder.follow({std::span(tokens).first(2), {}});
  EXPECT_EQ(finder.equal_tokens(), 0u);
}

TEST(DraftFinder, TakesMemoryInProportionUpToALimit) {
  EXPECT_EQ(DraftFinder::bytes_for(4096), 4096 * 2 * 4);
  EXPECT_EQ(DraftFinder::bytes_for(1), 64 * 2 * 4);
  EXPECT_EQ(DraftFinder::bytes_for(int64_t{1} << 30), 32768 * 2 * 4);
}

}  // namespace
}  // namespace jige::serve
