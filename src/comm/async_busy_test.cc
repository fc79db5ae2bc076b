// A group whose threads have no time to wait.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "comm/async_group.h"
#include "comm/test_support.h"

namespace jige::comm {
namespace {

class Busy : public testing::TestWithParam<const char*> {};

// Ranks 0 and 1 move data without a pause for longer than the timeout of rank 2, which waits.
TEST_P(Busy, RanksAreHeardByThoseWhoWait) {
  constexpr uint64_t kMessages = 40;
  const RingPlan plan = RingPlan::in_rank_order(3);
  const auto errors =
      run_ranks(make_transports(GetParam(), 3, plan), plan, {.timeout_s = 0.4},
                [&](Communicator& ranks) -> Status {
                  std::vector<std::byte> large(64 << 20);
                  std::vector<std::byte> last(100);
                  const auto group = AsyncGroup::over(std::move(ranks));
                  std::vector<Pending> all;
                  for (uint64_t tag = 0; tag < kMessages; ++tag) {
                    if (group->rank() == 0) all.push_back(group->send(1, large, tag));
                    if (group->rank() == 1) all.push_back(group->receive(0, large, tag));
                  }
                  if (group->rank() == 2) all.push_back(group->receive(0, last, kMessages));
                  for (const Pending& each : all) JIGE_DO(each.wait());
                  return group->rank() == 0 ? group->send(2, last, kMessages).wait() : Status();
                });
  EXPECT_THAT(errors, testing::Each(""));
}

INSTANTIATE_TEST_SUITE_P(All, Busy, testing::Values("shm", "tcp"),
                         [](const auto& tested) { return std::string(tested.param); });

}  // namespace
}  // namespace jige::comm
