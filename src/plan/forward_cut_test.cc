#include "plan/forward_cut.h"

#include <gtest/gtest.h>

#include "base/rng.h"

namespace jige::plan {
namespace {

using Forwards = std::vector<std::vector<ForwardPart>>;

WorkItem item_of(int32_t count, bool samples, int32_t draft_count = 0,
                 int32_t adapter = kBaseAdapter) {
  WorkItem item;
  item.adapter = adapter;
  item.tokens.resize(static_cast<size_t>(count));
  item.samples = samples;
  item.draft_count = draft_count;
  return item;
}

Forwards cut(const Batch& batch, const ForwardLimits& limits) {
  Forwards forwards(1);
  std::vector<size_t> order;
  EXPECT_TRUE(cut_into_forwards(
      batch, limits, order,
      [&](const ForwardPart& part) -> Status {
        forwards.back().push_back(part);
        return {};
      },
      [&]() -> Status {
        forwards.emplace_back();
        return {};
      }));
  EXPECT_TRUE(forwards.back().empty());
  forwards.pop_back();
  return forwards;
}

TEST(ForwardCut, FillsAForwardBeforeTheNext) {
  const Batch batch{.items = {item_of(1, true), item_of(20, true), item_of(3, false)}};
  const Forwards forwards = cut(batch, {.rows_max = 8, .sample_rows_max = 4});
  ASSERT_EQ(forwards.size(), 3u);
  ASSERT_EQ(forwards[0].size(), 2u);
  EXPECT_EQ(forwards[0][0].sample_rows, 1);
  EXPECT_EQ(forwards[0][1].count, 7);
  EXPECT_EQ(forwards[0][1].sample_rows, 0) << "its last row comes later";
  EXPECT_EQ(forwards[1][0].begin, 7);
  EXPECT_EQ(forwards[1][0].count, 8);
  EXPECT_EQ(forwards[2][0].sample_rows, 1);
  EXPECT_EQ(forwards[2][1].count, 3);
}

TEST(ForwardCut, CutsNoItemThatHasRoomByItself) {
  const Batch batch{.items = {item_of(5, false), item_of(4, false), item_of(3, false)}};
  const Forwards forwards = cut(batch, {.rows_max = 8, .samples = false, .whole = true});
  ASSERT_EQ(forwards.size(), 2u);
  ASSERT_EQ(forwards[0].size(), 1u);
  EXPECT_EQ(forwards[0][0].count, 5);
  ASSERT_EQ(forwards[1].size(), 2u);
  EXPECT_EQ(forwards[1][0].count, 4);
  EXPECT_EQ(forwards[1][1].count, 3);
}

TEST(ForwardCut, KeepsTheRowsOfLogits) {
  const Batch batch{.items = {item_of(1, true), item_of(1, true), item_of(1, true)}};
  EXPECT_EQ(cut(batch, {.rows_max = 8, .sample_rows_max = 2}).size(), 2u);
  EXPECT_EQ(cut(batch, {.rows_max = 8, .sample_rows_max = 2, .samples = false}).size(), 1u);
}

TEST(ForwardCut, BringsAdaptersTogetherTheBaseFirst) {
  const Batch batch{.items = {item_of(1, true, 0, 3), item_of(1, true), item_of(1, true, 0, 3)}};
  const Forwards forwards = cut(batch, {});
  ASSERT_EQ(forwards.size(), 1u);
  EXPECT_EQ(forwards[0][0].item, 1u);
  EXPECT_EQ(forwards[0][1].item, 0u);
}

TEST(ForwardCut, StopsAtTheFirstFailure) {
  const Batch batch{.items = {item_of(20, true)}};
  std::vector<size_t> order;
  int count = 0;
  const Status status = cut_into_forwards(
      batch, {.rows_max = 4}, order, [](const ForwardPart&) -> Status { return {}; },
      [&]() -> Status {
        ++count;
        return fail(Code::kIo, "no");
      });
  EXPECT_FALSE(status);
  EXPECT_EQ(count, 1);
}

// Its state is kept between two of its rows, in one forward.
TEST(ForwardCut, ADraftStaysTogetherWithWhatRunsAgain) {
  Batch batch;
  batch.items = {item_of(5, false), item_of(6, true, 2)};
  batch.items[1].again_count = 3;
  const auto forwards = cut(batch, {.rows_max = 8, .sample_rows_max = 4});
  ASSERT_EQ(forwards.size(), 2u);
  ASSERT_EQ(forwards[1].size(), 1u);
  EXPECT_EQ(forwards[1][0].item, 1u);
  EXPECT_EQ(forwards[1][0].begin, 0);
  EXPECT_EQ(forwards[1][0].count, 6);
  EXPECT_EQ(forwards[1][0].sample_rows, 3);
}

TEST(ForwardCut, EveryRowOnceInOrderAndWithinTheLimits) {
  Rng rng(5);
  for (int trial = 0; trial < 300; ++trial) {
    const ForwardLimits limits{.rows_max = 4 + static_cast<int64_t>(rng.below(20)),
                               .sample_rows_max = 4 + static_cast<int64_t>(rng.below(5))};
    Batch batch;
    const int count = 1 + static_cast<int>(rng.below(12));
    for (int i = 0; i < count; ++i) {
      const bool drafts = rng.below(3) == 0;
      const auto draft_count = static_cast<int32_t>(drafts ? rng.below(4) : 0);
      const auto rows = static_cast<int32_t>(drafts ? 1 + draft_count : 1 + rng.below(40));
      batch.items.push_back(item_of(rows, drafts || rng.below(2) == 0, draft_count));
    }
    std::vector<int32_t> done(batch.items.size());
    for (const auto& forward : cut(batch, limits)) {
      int64_t rows = 0, sample_rows = 0;
      for (const ForwardPart& part : forward) {
        const WorkItem& item = batch.items[part.item];
        EXPECT_EQ(part.begin, done[part.item]);
        EXPECT_GT(part.count, 0);
        done[part.item] += part.count;
        rows += part.count;
        sample_rows += part.sample_rows;
        const bool last = done[part.item] == std::ssize(item.tokens);
        EXPECT_EQ(part.sample_rows, last ? item.sample_rows() : 0);
        EXPECT_TRUE(item.draft_count == 0 || part.count == std::ssize(item.tokens));
      }
      EXPECT_LE(rows, limits.rows_max);
      EXPECT_LE(sample_rows, limits.sample_rows_max);
    }
    for (size_t i = 0; i < done.size(); ++i) {
      EXPECT_EQ(done[i], std::ssize(batch.items[i].tokens));
    }
  }
}

}  // namespace
}  // namespace jige::plan
