// Rows of divided sequences: every row once, equal work, and what ranks need of one another, by
// walking over all pairs of rows.
#include "model/context_split.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <set>

#include "base/rng.h"

namespace jige::model {
namespace {

std::vector<int32_t> random_counts(Rng& rng) {
  std::vector<int32_t> counts(1 + rng.below(5));
  for (int32_t& count : counts)
    count = static_cast<int32_t>(rng.below(2) ? rng.below(9) : 1 + rng.below(200));
  return counts;
}

// What every row of all is: its sequence's first row, and the one behind its last.
std::vector<RowRange> sequences_of_rows(const std::vector<int32_t>& counts) {
  std::vector<RowRange> rows;
  int64_t begin = 0;
  for (const int32_t count : counts) {
    rows.insert(rows.end(), static_cast<size_t>(count), RowRange{begin, begin + count});
    begin += count;
  }
  return rows;
}

std::set<int64_t> as_set(const std::vector<RowRange>& ranges) {
  std::set<int64_t> rows;
  for (const RowRange& range : ranges) {
    for (int64_t row = range.begin; row < range.end; ++row) EXPECT_TRUE(rows.insert(row).second);
  }
  return rows;
}

TEST(ContextSplit, GivesEveryRowToOneRankInAscendingOrderOfChunks) {
  Rng rng(7);
  for (int turn = 0; turn < 300; ++turn) {
    const std::vector<int32_t> counts = random_counts(rng);
    const int ranks = 1 + static_cast<int>(rng.below(6));
    const auto step = static_cast<int64_t>(1 + rng.below(3) * rng.below(20));
    const ContextSplit split(counts, ranks, step);
    const auto total = std::accumulate(counts.begin(), counts.end(), int64_t{0});
    ASSERT_EQ(split.row_count(), total);
    int64_t row = 0;
    std::vector<int64_t> of_rank(static_cast<size_t>(ranks));
    for (int64_t c = 0; c < split.chunk_count(); ++c) {
      const int owner = ContextSplit::owner(c, ranks);
      ASSERT_EQ(split.chunk(c).begin, row);
      ASSERT_TRUE(row % step == 0 || row == total);
      row = split.chunk(c).end;
      int64_t& held = of_rank[static_cast<size_t>(owner)];
      ASSERT_EQ(split.local_chunk(c), (RowRange{held, held + split.chunk(c).count()}));
      held += split.chunk(c).count();
      ASSERT_EQ(ContextSplit::owner(c + split.chunk_count(), ranks), owner);
    }
    ASSERT_EQ(row, total);
    for (int r = 0; r < ranks; ++r) {
      ASSERT_LE(of_rank[static_cast<size_t>(r)], ContextSplit::rows_max(total, ranks, step));
    }
    ASSERT_LE(ContextSplit::rows_max(total, ranks, step), total / ranks + 3 * step);
  }
}

TEST(ContextSplit, GivesAllRanksTheSameWorkOfOneSequence) {
  for (const int ranks : {2, 3, 4, 7}) {
    const std::vector<int32_t> counts = {4096};
    const ContextSplit split(counts, ranks);
    for (int r = 0; r < ranks; ++r) {
      double pairs = 0;
      for (const ops::SequencePiece& piece : split.pieces(r)) {
        for (int i = 0; i < piece.row_count; ++i) pairs += piece.position + i + 1;
      }
      const double even = 4096.0 * 4097 / 2 / ranks;
      EXPECT_NEAR(pairs / even, 1, 0.01) << r << " of " << ranks;
    }
  }
}

// Needed is what pairs of rows say, and a few rows of the first tile besides.
TEST(ContextSplit, KnowsWhatRanksNeedOfOneAnother) {
  Rng rng(8);
  for (int turn = 0; turn < 100; ++turn) {
    const std::vector<int32_t> counts = random_counts(rng);
    const int ranks = 1 + static_cast<int>(rng.below(5));
    const ContextSplit split(counts, ranks);
    const std::vector<RowRange> sequences = sequences_of_rows(counts);
    for (int r = 0; r < ranks; ++r) {
      const std::set<int64_t> own = as_set(split.rows(r));
      std::set<int64_t> keys, queries;
      for (const int64_t row : own) {
        const RowRange& sequence = sequences[static_cast<size_t>(row)];
        for (int64_t key = sequence.begin; key <= row; ++key) keys.insert(key);
        for (int64_t query = row; query < sequence.end; ++query) queries.insert(query);
      }
      ASSERT_EQ(as_set(split.needed(r, ContextNeed::kKeys)), keys);
      const std::set<int64_t> wide = as_set(split.needed(r, ContextNeed::kQueries));
      ASSERT_TRUE(std::ranges::includes(wide, queries));
      ASSERT_LE(wide.size(), queries.size() + 63 * split.pieces(r).size());
      for (const ContextNeed need : {ContextNeed::kKeys, ContextNeed::kQueries}) {
        std::set<int64_t> together = own;
        for (int from = 0; from < ranks; ++from) {
          for (const int64_t row : as_set(split.given(from, r, need))) {
            ASSERT_TRUE(together.insert(row).second) << "row " << row << " comes twice";
          }
        }
        ASSERT_TRUE(std::ranges::includes(together, as_set(split.needed(r, need))));
      }
    }
  }
}

TEST(ContextSplit, SaysWherePiecesOfSequencesAre) {
  const std::vector<int32_t> counts = {5, 0, 7};  // chunks of 3 rows
  const ContextSplit split(counts, 2);
  EXPECT_EQ(split.pieces(0), (std::vector<ops::SequencePiece>{{0, 3, 0, 0, 5}, {3, 3, 4, 5, 7}}));
  EXPECT_EQ(split.pieces(1),
            (std::vector<ops::SequencePiece>{{0, 2, 3, 0, 5}, {2, 1, 0, 5, 7}, {3, 3, 1, 5, 7}}));
}

}  // namespace
}  // namespace jige::model
