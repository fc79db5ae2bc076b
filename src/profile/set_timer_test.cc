#include "profile/set_timer.h"

#include <gtest/gtest.h>

#include <vector>

namespace jige::profile {
namespace {

// A link of one GB/s: a nanosecond a byte.
Result<SetRun> run_link(int64_t bytes) {
  const double seconds = static_cast<double>(bytes) * 1e-9;
  return SetRun{.makespan_s = seconds, .member_s = {seconds}};
}

double seconds_of_runs(double seconds_max) {
  const std::vector<double> whole = {1};
  const auto timed =
      time_set({.run_s = 0.12, .repeats = {.seconds_max = seconds_max}}, whole, run_link);
  EXPECT_TRUE(timed) << timed.error().message;
  EXPECT_NEAR(timed->measurement.rate, 1, 1e-9);
  return static_cast<double>(timed->bytes) * 1e-9;
}

TEST(SetTimer, RunsAreShorterWhereASetGetsLittleTime) {
  EXPECT_NEAR(seconds_of_runs(4), 0.12, 1e-6);
  EXPECT_NEAR(seconds_of_runs(1.44), 0.12, 1e-6);
  EXPECT_NEAR(seconds_of_runs(0.96), 0.08, 1e-6);
  EXPECT_NEAR(seconds_of_runs(0.4), 0.06, 1e-6) << "half, or queues count for too much";
}

TEST(SetTimer, ASizeThatIsGivenStays) {
  const std::vector<double> whole = {1};
  const auto timed =
      time_set({.bytes = 500'000'000, .repeats = {.seconds_max = 0.4}}, whole, run_link);
  ASSERT_TRUE(timed) << timed.error().message;
  EXPECT_EQ(timed->bytes, 500'000'000);
}

}  // namespace
}  // namespace jige::profile
