// A group whose threads have no time to wait.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <deque>
#include <span>
#include <thread>
#include <vector>

#include "comm/async_group.h"
#include "comm/test_support.h"

namespace jige::comm {
namespace {

class Busy : public testing::TestWithParam<const char*> {};

constexpr double kTimeout_s = 0.5;
constexpr uint64_t kLastTag = UINT64_MAX;

// What ranks 0 and 1 move: always four messages are under way, until it took long.
class Movers {
 public:
  Status send(AsyncGroup& group, std::span<const std::byte> message) {
    const Status sent = send_for_long(group, message);
    over_ = true;
    return sent;
  }

  Status receive(AsyncGroup& group, std::span<std::byte> message) {
    std::vector<Pending> all;
    for (uint64_t tag = 0; !over_ || tag < begun_;) {
      if (tag < begun_) {
        all.push_back(group.receive(0, message, tag++));
      } else {
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      }
    }
    for (const Pending& each : all) JIGE_DO(each.wait());
    return {};
  }

 private:
  Status send_for_long(AsyncGroup& group, std::span<const std::byte> message) {
    const Deadline enough = Deadline::after(1.6 * kTimeout_s);
    std::deque<Pending> under_way;
    for (uint64_t tag = 0; tag < 4 || !enough.passed(); ++tag) {
      if (under_way.size() == 4) {
        JIGE_DO(under_way.front().wait());
        under_way.pop_front();
      }
      under_way.push_back(group.send(1, message, tag));
      begun_ = tag + 1;
    }
    for (const Pending& each : under_way) JIGE_DO(each.wait());
    return {};
  }

  std::atomic<uint64_t> begun_{0};
  std::atomic<bool> over_{false};
};

// Ranks 0 and 1 move data without a pause for longer than the timeout of rank 2, which waits.
TEST_P(Busy, RanksAreHeardByThoseWhoWait) {
  const RingPlan plan = RingPlan::in_rank_order(3);
  Movers movers;
  const auto errors = run_ranks(make_transports(GetParam(), 3, plan), plan,
                                {.timeout_s = kTimeout_s}, [&](Communicator& ranks) -> Status {
                                  std::vector<std::byte> large(ranks.rank() < 2 ? 32 << 20 : 0),
                                      last(100);
                                  const auto group = AsyncGroup::over(std::move(ranks));
                                  if (group->rank() == 2)
                                    return group->receive(0, last, kLastTag).wait();
                                  if (group->rank() == 1) return movers.receive(*group, large);
                                  JIGE_DO(movers.send(*group, large));
                                  return group->send(2, last, kLastTag).wait();
                                });
  EXPECT_THAT(errors, testing::Each(""));
}

INSTANTIATE_TEST_SUITE_P(All, Busy, testing::Values("shm", "tcp"),
                         [](const auto& tested) { return std::string(tested.param); });

}  // namespace
}  // namespace jige::comm
