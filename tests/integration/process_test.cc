// What the tests themselves do with output that is not there.
#include "integration/process.h"

#include <gtest/gtest.h>

#include <stdexcept>

namespace jige::integration {
namespace {

TEST(JsonLines, OfEmptyOutputEndOneTestAlone) {
  const JsonLines none = Outcome{}.json_lines();
  EXPECT_EQ(none.size(), 0u);
  EXPECT_THROW((void)none.front(), std::out_of_range);
  EXPECT_THROW((void)none.back(), std::out_of_range);
  const JsonLines one = Outcome{.out = "{\"a\": 1}\n"}.json_lines();
  EXPECT_EQ(one.back()["a"], 1);
  EXPECT_THROW((void)one[1], std::out_of_range);
}

}  // namespace
}  // namespace jige::integration
