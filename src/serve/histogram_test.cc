#include "serve/histogram.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numeric>
#include <thread>

namespace jige::serve {
namespace {

TEST(Histogram, CountsValuesUpToEachBound) {
  Histogram histogram({1, 2, 5});
  for (const double value : {0.5, 1.0, 1.5, 2.0, 2.1, 5.0, 6.0, 100.0, std::nan("")}) {
    histogram.observe(value);
  }
  const Histogram::Snapshot snapshot = histogram.snapshot();
  EXPECT_EQ(snapshot.bounds, (std::vector<double>{1, 2, 5}));
  EXPECT_EQ(snapshot.counts, (std::vector<uint64_t>{2, 2, 2, 2}));
  EXPECT_EQ(snapshot.count, 8u);
  EXPECT_DOUBLE_EQ(snapshot.sum, 118.1);
}

TEST(Histogram, QuantilesLieInTheirBuckets) {
  Histogram histogram({1, 2, 4});
  EXPECT_EQ(histogram.snapshot().quantile(0.5), 0);
  for (int i = 0; i < 10; ++i) histogram.observe(1.5);
  for (int i = 0; i < 10; ++i) histogram.observe(3);
  const Histogram::Snapshot snapshot = histogram.snapshot();
  EXPECT_DOUBLE_EQ(snapshot.quantile(0.25), 1.5);
  EXPECT_DOUBLE_EQ(snapshot.quantile(0.5), 2);
  EXPECT_DOUBLE_EQ(snapshot.quantile(0.75), 3);
  EXPECT_DOUBLE_EQ(snapshot.quantile(1), 4);
  histogram.observe(99);
  EXPECT_DOUBLE_EQ(histogram.snapshot().quantile(1), 4);
}

TEST(Histogram, LosesNothingAmongThreads) {
  Histogram histogram(token_count_bounds());
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&histogram] {
      for (int i = 1; i <= 1000; ++i) histogram.observe(i);
    });
  }
  for (std::thread& thread : threads) thread.join();
  const Histogram::Snapshot snapshot = histogram.snapshot();
  EXPECT_EQ(snapshot.count, 4000u);
  EXPECT_DOUBLE_EQ(snapshot.sum, 4 * 500500.0);
  EXPECT_EQ(snapshot.counts[0], 4u);   // 1
  EXPECT_EQ(snapshot.counts[5], 64u);  // 17 to 32
}

TEST(Histogram, StandardBoundsAscend) {
  for (const auto& bounds : {latency_bounds(), token_count_bounds()}) {
    for (size_t i = 1; i < bounds.size(); ++i) EXPECT_LT(bounds[i - 1], bounds[i]);
  }
}

}  // namespace
}  // namespace jige::serve
