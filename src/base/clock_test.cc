#include "base/clock.h"

#include <gtest/gtest.h>

namespace jige {
namespace {

TEST(RealClock, NeverGoesBack) {
  const RealClock clock;
  int64_t last = clock.now_ns();
  for (int i = 0; i < 1000; ++i) {
    const int64_t now = clock.now_ns();
    ASSERT_GE(now, last);
    last = now;
  }
}

TEST(VirtualClock, MovesOnlyWhenTold) {
  VirtualClock clock;
  EXPECT_EQ(clock.now_ns(), 0);
  clock.advance(5);
  clock.advance(0);
  EXPECT_EQ(clock.now_ns(), 5);
}

TEST(VirtualClockDeathTest, RefusesToGoBack) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  VirtualClock clock;
  EXPECT_DEATH(clock.advance(-1), "cannot go back");
}

TEST(StopWatch, CountsSeconds) {
  const StopWatch watch;
  const double first = watch.seconds();
  EXPECT_GE(first, 0.0);
  EXPECT_LT(first, 60.0);
  EXPECT_GE(watch.seconds(), first);
}

}  // namespace
}  // namespace jige
