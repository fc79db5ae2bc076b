#include "cli/rank_processes.h"

#include <gtest/gtest.h>

#include <chrono>
#include <csignal>
#include <thread>

#include "base/clock.h"
#include "cli/interrupt.h"

namespace jige::cli {
namespace {

constexpr double kLong_s = 30;  // a test that waits for so long has failed

Status gone(int rank) { return fail(Code::kUnavailable, "rank {} has lost another", rank); }

// Who started them does not know it from the first moment on.
void stop_here() { raise(SIGSTOP); }

TEST(RankProcesses, RankZeroThatWasStoppedIsNotWaitedFor) {
  const InterruptScope interrupts;
  const StopWatch watch;
  const auto ends =
      run_rank_processes({.count = 2, .farewell_s_rank_0 = kLong_s, .farewell_s = 0.2},
                         [](int rank, std::atomic<bool>&) {
                           if (rank == 0) stop_here();
                           return gone(rank);
                         });
  ASSERT_TRUE(ends) << ends.error().message;
  EXPECT_LT(watch.seconds(), kLong_s / 2);
  EXPECT_FALSE((*ends)[0].told);
  EXPECT_TRUE((*ends)[1].told);
}

TEST(RankProcesses, ARankThatWritesIsWaitedForAsLongAsItTakes) {
  const InterruptScope interrupts;
  const auto ends =
      run_rank_processes({.count = 2, .farewell_s_rank_0 = 0.1, .farewell_s = 0.1},
                         [](int rank, std::atomic<bool>& writing) {
                           if (rank == 1) {
                             std::this_thread::sleep_for(std::chrono::milliseconds(50));
                             return gone(rank);
                           }
                           writing = true;
                           std::this_thread::sleep_for(std::chrono::milliseconds(600));
                           writing = false;
                           return gone(rank);
                         });
  ASSERT_TRUE(ends) << ends.error().message;
  EXPECT_TRUE((*ends)[0].told) << (*ends)[0].error->message;
}

TEST(RankProcesses, ARankThatWasStoppedWhileItWritesHasTheTimeOfRankZero) {
  const InterruptScope interrupts;
  const auto ends = run_rank_processes({.count = 2, .farewell_s_rank_0 = 0.5, .farewell_s = 0.1},
                                       [](int rank, std::atomic<bool>& writing) {
                                         writing = rank == 0;
                                         if (rank == 0) stop_here();
                                         return gone(rank);
                                       });
  ASSERT_TRUE(ends) << ends.error().message;
  EXPECT_FALSE((*ends)[0].told);
}

}  // namespace
}  // namespace jige::cli
