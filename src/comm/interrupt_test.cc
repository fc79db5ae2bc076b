// A rank that gives up while it waits: that it ends soon, and that the others hear who it was.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "base/clock.h"
#include "comm/join.h"
#include "comm/test_support.h"

namespace jige::comm {
namespace {

using ::testing::HasSubstr;

constexpr double kSoonSeconds = 5;  // long before any timeout
constexpr double kTimeoutSeconds = 20;

// Sets a flag a moment from now.
class Canceller {
 public:
  explicit Canceller(std::atomic<bool>& flag, int ms = 200)
      : thread_([&flag, ms] {
          std::this_thread::sleep_for(std::chrono::milliseconds(ms));
          flag = true;
        }) {}

 private:
  std::jthread thread_;
};

class Interrupted : public testing::TestWithParam<const char*> {};

// Rank 2 never calls; rank 1 gives up, and rank 0 must not wait for its own timeout either.
TEST_P(Interrupted, EndsACollectiveForItselfAndByNameForTheOthers) {
  // Directly, by trees, along the ring, and more than the streams hold.
  for (const int64_t count : {100, 20'000, 200'000, 4'000'000}) {
    RingPlan plan = RingPlan::in_rank_order(3);
    plan.trees = TreePair::over({0, 1, 2});
    plan.trees->bytes_max = 100'000;
    Transports transports = make_transports(GetParam(), 3, plan);
    std::atomic<bool> flag{false};
    std::vector<Status> ends(2);
    std::vector<std::jthread> ranks;
    for (size_t r = 0; r < 2; ++r) {
      ranks.emplace_back([&, r] {
        auto group = Communicator::over(
            std::move(transports[r]), plan,
            {.timeout_s = kTimeoutSeconds, .cancelled = r == 1 ? &flag : nullptr});
        std::vector<float> data(static_cast<size_t>(count));
        ends[r] = group->all_reduce(data.data(), data.data(), count, DType::kF32, RedOp::kSum);
      });
    }
    { const Canceller canceller(flag); }
    const StopWatch watch;
    ranks.clear();
    EXPECT_LT(watch.seconds(), kSoonSeconds) << count;
    ASSERT_FALSE(ends[1]);
    EXPECT_EQ(ends[1].error().code, Code::kCancelled);
    ASSERT_FALSE(ends[0]);
    EXPECT_EQ(ends[0].error().code, Code::kUnavailable) << "nobody has stopped rank 0";
    EXPECT_THAT(ends[0].error().message, HasSubstr("rank 1 ("));
    EXPECT_THAT(ends[0].error().message, HasSubstr("reports: interrupted"));
  }
}

TEST_P(Interrupted, EndsARowOfOperationsThatNeverWaitLong) {
  const RingPlan plan = RingPlan::in_rank_order(2);
  Transports transports = make_transports(GetParam(), 2, plan);
  std::atomic<bool> flag{false};
  std::vector<Status> ends(2);
  std::vector<std::jthread> ranks;
  for (size_t r = 0; r < 2; ++r) {
    ranks.emplace_back([&, r] {
      auto group = Communicator::over(std::move(transports[r]), plan,
                                      {.cancelled = r == 1 ? &flag : nullptr});
      const Deadline deadline = Deadline::after(kTimeoutSeconds);
      while (ends[r] && !deadline.passed()) ends[r] = group->barrier();
    });
  }
  { const Canceller canceller(flag, 50); }  // hundreds of operations
  const StopWatch watch;
  ranks.clear();
  EXPECT_LT(watch.seconds(), kSoonSeconds);
  EXPECT_EQ(ends[1].error().code, Code::kCancelled);
  EXPECT_THAT(ends[0].error().message, HasSubstr("reports: interrupted"));
}

INSTANTIATE_TEST_SUITE_P(All, Interrupted, testing::Values("threads", "shm", "tcp"),
                         [](const auto& tested) { return std::string(tested.param); });

TEST(Join, OfARankThatGivesUpEndsAtOnce) {
  const RingPlan plan = RingPlan::in_rank_order(3);
  Listener listener = *Listener::open({"127.0.0.1", 0});
  std::atomic<bool> flag{false};
  // Rank 1 waits for what rank 0 says, rank 0 for rank 2.
  std::vector<Result<std::unique_ptr<Transport>>> ends(2);
  std::vector<std::jthread> ranks;
  for (int r = 0; r < 2; ++r) {
    ranks.emplace_back([&, r] {
      const JoinOptions options = {.place = {r, 3, "test"},
                                   .rendezvous = listener.address(),
                                   .transport = "tcp",
                                   .timeout_s = kTimeoutSeconds,
                                   .cancelled = r == 0 ? &flag : nullptr};
      ends[static_cast<size_t>(r)] = join_group(options, plan, r == 0 ? &listener : nullptr);
    });
  }
  { const Canceller canceller(flag); }
  const StopWatch watch;
  ranks.clear();
  EXPECT_LT(watch.seconds(), kSoonSeconds);
  ASSERT_FALSE(ends[0]);
  EXPECT_EQ(ends[0].error().code, Code::kCancelled);
  ASSERT_FALSE(ends[1]);
  EXPECT_THAT(ends[1].error().message, HasSubstr("interrupted before all 3 ranks had come"));
  EXPECT_EQ(ends[1].error().code, Code::kUnavailable);
}

TEST(Join, OfARankThatFindsNobodyEndsWhenItGivesUp) {
  std::atomic<bool> flag{false};
  const int port = Listener::open({"127.0.0.1", 0})->address().port;
  const StopWatch watch;
  const Canceller canceller(flag);
  const auto joined = join_group({.place = {1, 2, "test"},
                                  .rendezvous = {"127.0.0.1", port},
                                  .timeout_s = kTimeoutSeconds,
                                  .cancelled = &flag},
                                 RingPlan::in_rank_order(2));
  EXPECT_LT(watch.seconds(), kSoonSeconds);
  ASSERT_FALSE(joined);
  EXPECT_EQ(joined.error().code, Code::kCancelled);
}

}  // namespace
}  // namespace jige::comm
