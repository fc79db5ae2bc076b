// Whose a sequence is, and which blocks a subnetwork keeps.
#include "model/step_dropout.h"

#include <gtest/gtest.h>

#include <map>
#include <set>
#include <vector>

#include "model/block.h"

namespace jige::model {
namespace {

constexpr int64_t kDroppedWidth = 640;

StepDropout blocks_of(std::vector<uint64_t> members, int64_t token_count) {
  return {.token_count = token_count,
          .members = std::move(members),
          .block_rate = 0.3,
          .block_size = 64};
}

Batch batch_of(const std::vector<int32_t>& lengths, const StepDropout& dropout) {
  Batch batch;
  int32_t row = 0;
  for (const int32_t length : lengths) {
    batch.sequences.push_back({.row_begin = row, .row_count = length});
    row += length;
  }
  batch.dropout = dropout;
  return batch;
}

// The columns that each row of a batch keeps.
std::vector<std::vector<ops::KeptRun>> runs_by_row(const Batch& batch, uint64_t site) {
  const auto kept = kept_columns(batch, site, kDroppedWidth);
  std::vector<std::vector<ops::KeptRun>> rows;
  for (const ops::KeptRows& range : kept->rows) {
    for (int64_t r = range.begin; r < range.end; ++r) rows.push_back(range.runs);
  }
  return rows;
}

TEST(StepDropout, KeepsAsManyBlocksOfEachSubnetworkEverywhere) {
  for (const uint64_t key : {1, 2, 3, 4, 5}) {
    const Batch batch = batch_of({10}, blocks_of({key}, 10));
    const auto kept = kept_columns(batch, 4, kDroppedWidth);
    ASSERT_TRUE(kept);
    EXPECT_EQ(kept->size, kDroppedWidth);
    EXPECT_EQ(kept->kept, 7 * 64);
    int64_t columns = 0;
    for (const ops::KeptRun& run : kept->rows[0].runs) {
      EXPECT_EQ(run.begin % 64, 0);
      columns += run.count;
    }
    EXPECT_EQ(columns, kept->kept);
  }
}

TEST(StepDropout, KeepsEveryBlockAsOften) {
  std::map<int64_t, int> kept_times;
  constexpr int kKeys = 4000;
  for (uint64_t key = 0; key < kKeys; ++key) {
    const auto rows = runs_by_row(batch_of({1}, blocks_of({key}, 1)), 2);
    for (const ops::KeptRun& run : rows[0]) {
      for (int64_t c = run.begin; c < run.begin + run.count; c += 64) ++kept_times[c];
    }
  }
  EXPECT_EQ(kept_times.size(), 10u);
  // 4000 draws of 7 in 10 deviate by 29.
  for (const auto& [column, times] : kept_times) EXPECT_NEAR(times, 2800, 150) << column;
}

TEST(StepDropout, ASubnetworkIsTheSameWhereverItsRowsStandAndOtherAtOtherSites) {
  const StepDropout dropout = blocks_of({11, 12}, 40);
  const auto whole = runs_by_row(batch_of({10, 9, 21}, dropout), 6);
  // Sequences begin at 0, 10 and 19 of 40: all are the first's, since none begins at 20 or later.
  for (const auto& runs : whole) EXPECT_EQ(runs, whole[0]);
  StepDropout later = dropout;
  later.token_begin = 20;
  const auto second = runs_by_row(batch_of({20}, later), 6);
  EXPECT_NE(second[0], whole[0]);
  EXPECT_EQ(second[0], runs_by_row(batch_of({3}, blocks_of({12}, 3)), 6)[0]);
  EXPECT_NE(runs_by_row(batch_of({20}, later), 8)[0], second[0]);
}

TEST(StepDropout, SequencesKeepTheirSubnetworkHoweverAStepIsCut) {
  const std::vector<int32_t> lengths = {7, 30, 2, 2, 19, 40, 5, 11};
  const StepDropout dropout = blocks_of({1, 2, 3, 4, 5}, 116);
  const auto whole = runs_by_row(batch_of(lengths, dropout), 2);
  std::set<std::vector<int64_t>> different;
  std::vector<std::vector<ops::KeptRun>> parts;
  StepDropout at = dropout;
  for (size_t begin = 0; begin < lengths.size(); begin += 3) {
    const std::vector<int32_t> some(
        lengths.begin() + static_cast<std::ptrdiff_t>(begin),
        lengths.begin() + static_cast<std::ptrdiff_t>(std::min(begin + 3, lengths.size())));
    const auto rows = runs_by_row(batch_of(some, at), 2);
    parts.insert(parts.end(), rows.begin(), rows.end());
    at.token_begin += static_cast<int64_t>(rows.size());
  }
  EXPECT_EQ(parts, whole);
  for (const auto& runs : whole) {
    std::vector<int64_t> begins;
    for (const ops::KeptRun& run : runs) begins.push_back(run.begin);
    different.insert(begins);
  }
  EXPECT_EQ(different.size(), 4u);  // of five: no sequence begins in the fourth fifth of the step
}

TEST(StepDropout, IsOffWithoutARate) {
  StepDropout dropout = blocks_of({1}, 10);
  dropout.block_rate = 0;
  EXPECT_FALSE(kept_columns(batch_of({10}, dropout), 2, kDroppedWidth));
  EXPECT_FALSE(kept_columns(batch_of({10}, {}), 2, kDroppedWidth));
}

}  // namespace
}  // namespace jige::model
