// Scores by distance: the buckets of transformers, and where each stands.
#include "ops/distance_scores.h"

#include <gtest/gtest.h>

#include <vector>

#include "ops/testing.h"

namespace jige::ops {
namespace {

// What MPNet's relative_position_bucket gives in transformers 5.24 for distances up to 520: where a
// bucket begins.
TEST(DistanceScores, BucketsAreThoseOfTransformers) {
  const std::vector<int64_t> begins = {1, 2, 3, 4, 5, 6, 7, 8, 12, 16, 23, 32, 46, 64, 91};
  EXPECT_EQ(distance_bucket(0, 32), 0);
  int64_t bucket = 0;
  for (int64_t distance = 1; distance <= 520; ++distance) {
    if (static_cast<size_t>(bucket) < begins.size() &&
        distance == begins[static_cast<size_t>(bucket)]) {
      ++bucket;
    }
    EXPECT_EQ(distance_bucket(-distance, 32), bucket) << distance;
    EXPECT_EQ(distance_bucket(distance, 32), 16 + bucket) << distance;
  }
  EXPECT_EQ(bucket, 15);
  EXPECT_EQ(distance_bucket(int64_t{1} << 26, 32), 31);
}

TEST(DistanceScores, EveryHeadHasItsNumbersFromTheFarthestKeyBefore) {
  test::TestStream stream;
  test::Matrix table(DType::kF32, 32, 3);
  Rng rng(1);
  table.fill_normal(rng);
  for (const int64_t tokens : {1, 2, 40, 300}) {
    test::Matrix dst(DType::kF32, 3, distance_count(tokens), 2);
    distance_scores(*stream, dst.view(), table.view());
    (*stream).synchronize();
    for (int64_t head = 0; head < 3; ++head) {
      for (int64_t d = 1 - tokens; d <= tokens + kDistancesBeyond; ++d) {
        EXPECT_EQ(dst.get(head, d + tokens - 1), table.get(distance_bucket(d, 32), head)) << d;
      }
    }
  }
}

}  // namespace
}  // namespace jige::ops
