// Rows by distance: the buckets of transformers, and where each row stands.
#include "ops/distance_rows.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "ops/testing.h"

namespace jige::ops {
namespace {

// What DeBERTa's make_log_bucket_position gives in transformers 5.24 for distances below 1200:
// where the buckets behind the middle begin.
struct RecordedBuckets {
  DistanceTable table;
  std::vector<int64_t> begins;
};

const std::vector<RecordedBuckets>& recorded_buckets() {
  static const std::vector<RecordedBuckets> all = {
      {{.side = 256, .widens = true, .reach = 512},
       {129, 130, 131, 133, 134, 136, 137, 139, 140, 142, 143, 145, 146, 148, 150, 151,
        153, 155, 156, 158, 160, 161, 163, 165, 167, 169, 170, 172, 174, 176, 178, 180,
        182, 184, 186, 188, 190, 192, 194, 196, 198, 201, 203, 205, 207, 210, 212, 214,
        216, 219, 221, 224, 226, 229, 231, 234, 236, 239, 241, 244, 247, 249, 252, 255,
        258, 260, 263, 266, 269, 272, 275, 278, 281, 284, 287, 290, 294, 297, 300, 303,
        307, 310, 313, 317, 320, 324, 327, 331, 335, 338, 342, 346, 349, 353, 357, 361,
        365, 369, 373, 377, 381, 385, 390, 394, 398, 403, 407, 411, 416, 420, 425, 430,
        434, 439, 444, 449, 454, 459, 464, 469, 474, 479, 484, 490, 495, 500, 506, 512}},
      {{.side = 32, .widens = true, .reach = 128},
       {17, 19, 22, 25, 28, 32, 37, 43, 49, 56, 64, 74, 84, 97, 111, 128}},
      {{.side = 8, .widens = true, .reach = 40}, {5, 9, 19, 40}},
      {{.side = 5, .widens = true, .reach = 30}, {3, 30, 421}}};
  return all;
}

TEST(DistanceRows, AreThoseOfTransformers) {
  for (const auto& [table, begins] : recorded_buckets()) {
    int64_t bucket = table.side / 2;
    size_t next = 0;
    for (int64_t distance = 0; distance < 1200; ++distance) {
      if (next < begins.size() && distance == begins[next]) {
        ++bucket;
        ++next;
      }
      const int64_t own = distance <= table.side / 2 ? distance : bucket;
      EXPECT_EQ(distance_row(table, distance), std::min(table.side + own, 2 * table.side - 1))
          << distance;
      EXPECT_EQ(distance_row(table, -distance), std::max<int64_t>(table.side - own, 0)) << distance;
    }
    EXPECT_EQ(next, begins.size());
  }
}

TEST(DistanceRows, PlainOnesAreThoseOfTheDistancesThatThereAre) {
  const DistanceTable table{.side = 7};
  for (int64_t distance = -20; distance <= 20; ++distance) {
    EXPECT_EQ(distance_row(table, distance), std::clamp<int64_t>(7 + distance, 0, 13));
  }
  EXPECT_EQ(distance_row(table, int64_t{1} << 26), 13);
  EXPECT_EQ(distance_row({.side = 256, .widens = true, .reach = 512}, -(int64_t{1} << 26)), 0);
}

TEST(DistanceRows, StandFromTheFarthestKeyBeforeToTheFarthestBehind) {
  test::TestStream stream;
  for (const DistanceTable& table :
       {DistanceTable{.side = 7}, DistanceTable{.side = 32, .widens = true, .reach = 128}}) {
    for (const int64_t tokens : {1, 2, 6, 40, 300}) {
      const DistanceRowRange range = distance_rows_of(table, tokens);
      std::vector<int32_t> rows(static_cast<size_t>(2 * tokens - 1), -1);
      distance_rows(*stream, TensorView::of(rows.data(), DType::kI32, Shape{2 * tokens - 1}),
                    table);
      (*stream).synchronize();
      std::vector<uint8_t> used(static_cast<size_t>(range.count()), 0);
      for (int64_t ahead = 1 - tokens; ahead < tokens; ++ahead) {
        const int64_t row = rows[static_cast<size_t>(ahead + tokens - 1)];
        EXPECT_EQ(row + range.first, distance_row(table, -ahead));
        ASSERT_TRUE(row >= 0 && row < range.count());
        used[static_cast<size_t>(row)] = 1;
      }
      EXPECT_EQ(std::ranges::count(used, 0), 0) << "all are needed";
    }
  }
}

}  // namespace
}  // namespace jige::ops
