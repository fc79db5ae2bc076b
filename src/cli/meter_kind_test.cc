#include "cli/meter_kind.h"

#include <gtest/gtest.h>

#include "base/file.h"
#include "base/test_path.h"

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

TEST(MeterKind, FactsOfNowReplaceThoseOfADescription) {
  const std::string path = test_path("network.json");
  ASSERT_TRUE(write_file_atomic(path, R"({"format":"jige.topology","version":1,"name":"lab",
      "environment":{"kernel":"5.10","rack":"3"},"components":[{"name":"a","kind":"host"}]})"));
  topology::Description known;
  known.environment = {{"kernel", "6.1"}, {"tcp congestion", "bbr"}};
  const auto described_now = described(known, TopologyFlags{.file = path});
  ASSERT_TRUE(described_now) << described_now.error().message;
  EXPECT_EQ(described_now->name, "lab");
  EXPECT_EQ(described_now->environment,
            (std::map<std::string, std::string>{
                {"kernel", "6.1"}, {"rack", "3"}, {"tcp congestion", "bbr"}}));
}

}  // namespace
}  // namespace jige::cli
