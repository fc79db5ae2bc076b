#include "cli/meter_kind.h"

#include <gtest/gtest.h>

namespace jige::cli {
namespace {

TEST(MeterRequest, ASmallBudgetIsSharedBySets) {
  EXPECT_DOUBLE_EQ(MeterRequest().seconds_per_set(), 4);
  EXPECT_DOUBLE_EQ(MeterRequest{.budget_s = 60}.seconds_per_set(), 1);
  EXPECT_DOUBLE_EQ(MeterRequest{.budget_s = 1000}.seconds_per_set(), 4);
  EXPECT_DOUBLE_EQ(MeterRequest{.budget_s = 0}.seconds_per_set(), 0.4);
  const MeterRequest told{.set_seconds = 7, .budget_s = 30};
  EXPECT_DOUBLE_EQ(told.seconds_per_set(), 7);
}

}  // namespace
}  // namespace jige::cli
