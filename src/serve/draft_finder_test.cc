// Drafts: what a text did before, and how their length follows their luck.
#include "serve/draft_finder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "base/rng.h"

namespace jige::serve {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

std::vector<int32_t> draft_behind(std::vector<int32_t> tokens, int64_t limit = 8,
                                  int64_t draft_max = 8) {
  DraftFinder finder(draft_max);
  finder.append(tokens);
  const auto draft = finder.draft(limit);
  return {draft.begin(), draft.end()};
}

TEST(DraftFinder, GoesOnAsTheTextDidBefore) {
  EXPECT_THAT(draft_behind({1, 2, 3, 4, 5, 6, 1, 2}), ElementsAre(3, 4, 5));
  EXPECT_THAT(draft_behind({1, 2, 3, 9, 1, 2, 4, 9, 1, 2}), ElementsAre(4, 9, 1))
      << "the latest place counts";
  EXPECT_THAT(draft_behind({5, 1, 2, 3, 8, 1, 2, 4, 5, 1, 2}), ElementsAre(3, 8, 1))
      << "but a longer match more";
  EXPECT_THAT(draft_behind({7, 7, 7}), ElementsAre(7));
  EXPECT_THAT(draft_behind({1, 2, 3, 4, 1, 2}, 1), ElementsAre(3));
}

TEST(DraftFinder, HasNoneWhereNothingRepeats) {
  EXPECT_THAT(draft_behind({}), IsEmpty());
  EXPECT_THAT(draft_behind({1}), IsEmpty());
  EXPECT_THAT(draft_behind({1, 2, 3, 4, 2}), IsEmpty()) << "one token is no match";
  EXPECT_THAT(draft_behind({1, 2, 3, 1, 2}, 0), IsEmpty());
  EXPECT_THAT(draft_behind({1, 2, 3, 1, 2}, 8, 0), IsEmpty());
}

TEST(DraftFinder, DraftsGrowWhileTheyAreRight) {
  DraftFinder finder(7);
  std::vector<int32_t> period;
  for (int32_t i = 0; i < 20; ++i) period.push_back(i);
  finder.append(period);
  finder.append(period);
  size_t at = 0;
  for (const size_t expected : {3u, 6u, 7u, 7u}) {
    const auto draft = finder.draft(100);
    ASSERT_EQ(draft.size(), expected);
    const std::vector<int32_t> came(draft.begin(), draft.end());
    for (const int32_t token : came) EXPECT_EQ(token, static_cast<int32_t>(at++ % 20));
    finder.judge(came.size(), came.size());
    finder.append(came);
  }
  finder.judge(7, 2);
  EXPECT_EQ(finder.draft(100).size(), 3u) << "one more than were right";
}

TEST(DraftFinder, WrongDraftsBringPausesThatGrow) {
  DraftFinder finder(8);
  std::vector<int64_t> pauses;
  for (int round = 0; round < 8; ++round) {
    int64_t waited = 0;
    while (finder.draft(8).empty()) {
      const int32_t token = static_cast<int32_t>(waited++ % 2);
      finder.append(std::span(&token, 1));
    }
    pauses.push_back(waited);
    finder.judge(finder.draft(8).size(), 0);
  }
  pauses.erase(pauses.begin());  // until the text repeats itself
  EXPECT_THAT(pauses, ElementsAre(4, 8, 16, 32, 64, 64, 64));
}

TEST(DraftFinder, DraftsThatAreHalfRightPauseToo) {
  DraftFinder finder(4);
  const std::vector<int32_t> tokens(20, 1);
  finder.append(tokens);
  int pauses = 0;
  for (int round = 0; round < 20; ++round) {
    const size_t drafted = finder.draft(4).size();
    if (drafted == 0) {
      ++pauses;
      finder.append(std::span(tokens).first(1));
    } else {
      finder.judge(drafted, drafted / 2);
    }
  }
  EXPECT_GE(pauses, 10);
}

// Against a search of the whole text.
TEST(DraftFinder, FindsTheLatestOfTheLongestMatches) {
  Rng rng(3);
  for (int trial = 0; trial < 200; ++trial) {
    std::vector<int32_t> tokens;
    const uint64_t count = 2 + rng.below(40);
    for (uint64_t i = 0; i < count; ++i) tokens.push_back(static_cast<int32_t>(rng.below(3)));
    std::vector<int32_t> expected;
    for (size_t length = DraftFinder::kMatchMax; length >= DraftFinder::kMatchMin; --length) {
      for (size_t begin = 0; begin + length < tokens.size(); ++begin) {
        if (!std::equal(tokens.end() - static_cast<std::ptrdiff_t>(length), tokens.end(),
                        tokens.begin() + static_cast<std::ptrdiff_t>(begin))) {
          continue;
        }
        const size_t next = begin + length;
        expected.assign(
            tokens.begin() + static_cast<std::ptrdiff_t>(next),
            tokens.begin() + static_cast<std::ptrdiff_t>(std::min(next + 3, tokens.size())));
      }
      if (!expected.empty()) break;
    }
    EXPECT_EQ(draft_behind(tokens), expected) << ::testing::PrintToString(tokens);
  }
}

}  // namespace
}  // namespace jige::serve
