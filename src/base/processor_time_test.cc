#include "base/processor_time.h"

#include <gtest/gtest.h>

#include "base/clock.h"

namespace jige {
namespace {

TEST(ProcessorTime, IsReadFromTheLineOfAllProcessors) {
  const ProcessorTime time =
      parse_processor_time("cpu  10 20 30 400 50 6 7 8 99 98\ncpu0 1 1 1 1 1 1 1 1 0 0\n");
  EXPECT_EQ(time, (ProcessorTime{450, 531}));
  EXPECT_DOUBLE_EQ((time - ProcessorTime{440, 511}).idle_share(), 0.5);
  EXPECT_DOUBLE_EQ(ProcessorTime().idle_share(), 1);
}

TEST(ProcessorTime, IsNothingWhereTheTextIsAnother) {
  for (const char* text : {"", "cpu", "cpu ", "cpu0 1 2 3 4 5 6 7 8", "cpu  1 2 3\nintr 4 5 6 7 8",
                           "cpu  1 2 3 -4 5 6 7 8", "cpu  1 2 3 99999999999999999999 5 6 7 8",
                           "cpu  9223372036854775807 9223372036854775807 3 4 5 6 7 8"}) {
    EXPECT_EQ(parse_processor_time(text), ProcessorTime()) << text;
  }
}

TEST(ProcessorTime, OfThisMachineGoesOn) {
  const ProcessorTime before = processor_time();
  ASSERT_GT(before.all, 0);
  ASSERT_LE(before.idle, before.all);
  const StopWatch clock;
  while ((processor_time() - before).all == 0 && clock.seconds() < 5) {
  }
  EXPECT_GT((processor_time() - before).all, 0);
}

}  // namespace
}  // namespace jige
