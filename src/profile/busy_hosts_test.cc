#include "profile/busy_hosts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace jige::profile {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST(BusyHosts, TellsOfEachOnceAndOnlyAfterAWhile) {
  BusyHosts busy({"a", "b", "c"});
  busy.add(0, {.idle = 1, .all = 100});
  busy.add(1, {.idle = 200, .all = 400});
  EXPECT_THAT(busy.take(), IsEmpty()) << "a short time says little";
  busy.add(0, {.idle = 3, .all = 300});
  EXPECT_THAT(busy.take(), ElementsAre("a (1 % idle)"));
  busy.add(0, {.idle = 0, .all = 500});
  busy.add(2, {});
  EXPECT_THAT(busy.take(), IsEmpty());
  busy.add(1, {.idle = 0, .all = 4000});
  EXPECT_THAT(busy.take(), ElementsAre("b (5 % idle)"));
}

TEST(BusyHosts, WarnNamingThem) {
  BusyHosts busy({"this machine"});
  testing::internal::CaptureStderr();
  busy.add(0, {.idle = 390, .all = 400});
  busy.warn();
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
  busy.add(0, {.idle = 10, .all = 40'000});
  testing::internal::CaptureStderr();
  busy.warn();
  EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr("on this machine (1 % idle)"));
}

}  // namespace
}  // namespace jige::profile
