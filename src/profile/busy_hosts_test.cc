#include "profile/busy_hosts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace jige::profile {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(BusyHosts, TellsOfEachOnceAndOnlyAfterAWhile) {
  BusyHosts busy(3);
  busy.add(0, {.idle = 1, .all = 100});
  busy.add(1, {.idle = 200, .all = 400});
  EXPECT_THAT(busy.take(), IsEmpty()) << "a short time says little";
  busy.add(0, {.idle = 3, .all = 300});
  EXPECT_THAT(busy.take(), ElementsAre(0));
  EXPECT_DOUBLE_EQ(busy.idle_share(0), 0.01);
  busy.add(0, {.idle = 0, .all = 500});
  busy.add(2, {});
  EXPECT_THAT(busy.take(), IsEmpty());
  busy.add(1, {.idle = 0, .all = 4000});
  EXPECT_THAT(busy.take(), ElementsAre(1));
}

}  // namespace
}  // namespace jige::profile
