#include "ops/kernel_rows.h"

#include <gtest/gtest.h>

namespace jige::ops {
namespace {

TEST(KernelRows, EvenRangesGiveThreadsEqualShares) {
  for (const int threads : {1, 2, 3}) {
    CpuDevice device({.name = "cpu0", .thread_count = threads});
    for (const int64_t count : {1, 55, 56, 57, 100, 512, 2048, 147456}) {
      for (const int64_t least : {1, 56, 16384}) {
        for (const int64_t step : {1, 32}) {
          const int64_t grain = even_grain(device, count, least, step);
          const int64_t ranges = (count + grain - 1) / grain;
          EXPECT_EQ(grain % step, 0);
          EXPECT_LE(ranges, 16 * threads);
          if (count <= least) {
            EXPECT_EQ(ranges, 1) << count << " " << least;
          }
          // The last range may lack what the others were rounded up by.
          EXPECT_LT(ranges * grain - count, ranges * step) << count << " " << least;
          if (count > 16 * threads * least && count > 256 * threads * step) {
            EXPECT_EQ(ranges % threads, 0) << count << " " << least;
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace jige::ops
