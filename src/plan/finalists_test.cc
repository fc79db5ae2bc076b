#include "plan/finalists.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace jige::plan {
namespace {

using ::testing::ElementsAre;

// Finalists of which each takes a second; the second time each is faster than the other two.
std::vector<double> within(double budget_s, size_t count, int* runs) {
  double left_s = budget_s;
  std::vector<int> turns(count);
  const auto rates = measure_in_turns(
      count, [&] { return left_s; },
      [&](size_t i) -> Result<double> {
        left_s -= 1;
        ++*runs;
        return static_cast<double>(10 * (i + 1)) + std::vector<int>{1, 2, 0}.at(turns[i]++ % 3);
      });
  return rates.value_or(std::vector<double>());
}

TEST(Finalists, AreMeasuredThreeTimesAndTheMiddleCounts) {
  int runs = 0;
  EXPECT_THAT(within(9, 3, &runs), ElementsAre(11, 21, 31));
  EXPECT_EQ(runs, 9);
}

TEST(Finalists, AreFewerWhereTheTimeIsShort) {
  int runs = 0;
  EXPECT_THAT(within(9, 5, &runs), ElementsAre(11, 21, 31, 0, 0));
  EXPECT_EQ(runs, 9);
}

TEST(Finalists, AreTwoAtLeastInFewerTurns) {
  int runs = 0;
  EXPECT_THAT(within(4.5, 5, &runs), ElementsAre(12, 22, 0, 0, 0));
  EXPECT_EQ(runs, 4);
  runs = 0;
  EXPECT_THAT(within(-1, 5, &runs), ElementsAre(11, 21, 0, 0, 0));
  EXPECT_EQ(runs, 2);
  runs = 0;
  EXPECT_THAT(within(-1, 1, &runs), ElementsAre(11));
}

TEST(Finalists, FailAsMeasuringDoes) {
  const auto failed = measure_in_turns(
      3, [] { return 1e9; },
      [](size_t) -> Result<double> { return fail(Code::kUnavailable, "gone"); });
  EXPECT_EQ(failed.error().message, "gone");
}

}  // namespace
}  // namespace jige::plan
