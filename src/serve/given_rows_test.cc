#include "serve/given_rows.h"

#include <gtest/gtest.h>

#include <memory>
#include <numeric>
#include <utility>
#include <vector>

namespace jige::serve {
namespace {

constexpr int32_t kNumbers = 2;  // of a row

// Rows whose numbers count up, level by level and row by row.
GivenRowsRef counted_rows(int32_t first_id, int64_t count, int32_t levels) {
  GivenRows rows{.first_id = first_id, .token = 7, .count = count, .levels = levels};
  rows.values.resize(static_cast<size_t>(levels * count * kNumbers));
  std::iota(rows.values.begin(), rows.values.end(), static_cast<float>(1000 * first_id));
  return std::make_shared<const GivenRows>(std::move(rows));
}

TEST(GivenTable, PlacesTheRowsOfAllLevels) {
  const std::vector<int32_t> prompt = {1, 50, 51, 52, 2, 60, 61};
  const GivenTable table({counted_rows(60, 2, 1), counted_rows(50, 3, 4)}, prompt);
  std::vector<int32_t> tokens = prompt;
  PlacedRows placed;
  table.place(tokens, 10, placed);
  EXPECT_EQ(tokens, (std::vector<int32_t>{1, 7, 7, 7, 2, 7, 7}));
  ASSERT_EQ(placed.given.size(), 5u);
  for (int32_t row = 0; row < 3; ++row) {
    const model::GivenRow& given = placed.given[static_cast<size_t>(row)];
    EXPECT_EQ(given.row, 11 + row);
    EXPECT_EQ(given.values[1], static_cast<float>(50000 + kNumbers * row + 1));
    ASSERT_EQ(given.deep_count, 3);
    for (int32_t level = 1; level < 4; ++level) {
      const float* const deep = given.deep + (level - 1) * given.deep_stride;
      EXPECT_EQ(deep[1], static_cast<float>(50000 + kNumbers * (3 * level + row) + 1)) << level;
    }
  }
  EXPECT_EQ(placed.given[4].row, 16);
  EXPECT_EQ(placed.given[4].values[0], 60002.0f);
  EXPECT_EQ(placed.given[4].deep_count, 0);
  EXPECT_TRUE(placed.mutual.empty());
}

// Also from the middle of one on, as where its beginning is in a cache.
TEST(GivenTable, PlacesRowsThatSeeOneAnotherAsRuns) {
  GivenRows rows = *counted_rows(50, 3, 1);
  rows.mutual = true;
  const GivenTable table({std::make_shared<const GivenRows>(rows)}, {});
  std::vector<int32_t> tokens = {52, 1, 50, 51, 52, 50, 51, 52, 2};
  PlacedRows placed;
  table.place(tokens, 4, placed);
  ASSERT_EQ(placed.mutual.size(), 3u);
  const std::vector<std::pair<int64_t, int64_t>> expected = {{4, 5}, {6, 9}, {9, 12}};
  for (size_t i = 0; i < expected.size(); ++i) {
    EXPECT_EQ(placed.mutual[i].begin, expected[i].first);
    EXPECT_EQ(placed.mutual[i].end, expected[i].second);
  }
}

}  // namespace
}  // namespace jige::serve
