#include "base/threads.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <thread>
#include <utility>
#include <vector>

#include "base/rng.h"

namespace jige {
namespace {

void wait_some(uint64_t microseconds) {
  std::this_thread::sleep_for(std::chrono::microseconds(microseconds));
}

TEST(ThreadTeam, RunsEveryIndexOnce) {
  for (const int size : {1, 2, 3, 5}) {
    ThreadTeam team(size);
    EXPECT_EQ(team.size(), size);
    for (const int64_t count : {0, 1, 2, 7, 64, 1000}) {
      for (const int64_t grain : {-1, 0, 1, 3, 64, 5000}) {
        std::vector<std::atomic<int>> runs(static_cast<size_t>(count));
        team.parallel_for(count, grain, [&](int64_t begin, int64_t end, int) {
          for (int64_t i = begin; i < end; ++i) runs[static_cast<size_t>(i)].fetch_add(1);
        });
        for (const auto& run : runs) ASSERT_EQ(run.load(), 1);
      }
    }
  }
}

TEST(ThreadTeam, CutsRangesAtMultiplesOfTheGrain) {
  ThreadTeam team(3);
  for (const int64_t grain : {1, 7, 16}) {
    std::atomic<bool> good{true};
    team.parallel_for(1000, grain, [&](int64_t begin, int64_t end, int worker) {
      const bool whole = begin % grain == 0 && (end % grain == 0 || end == 1000);
      if (!whole || begin >= end || worker < 0 || worker >= 3) good = false;
    });
    EXPECT_TRUE(good) << grain;
  }
}

TEST(ThreadTeam, StartsEveryThreadWithTheSameShareOfEveryLoop) {
  constexpr int kThreads = 3;
  ThreadTeam team(kThreads);
  for (const int64_t count : {300, 1200}) {
    for (int round = 0; round < 20; ++round) {
      std::atomic<int64_t> first[kThreads] = {-1, -1, -1};
      team.parallel_for(count, 1, [&](int64_t begin, int64_t, int worker) {
        int64_t none = -1;
        first[worker].compare_exchange_strong(none, begin);
        for (const auto& other : first) {  // nobody takes from another's share before all are here
          while (other.load() < 0) std::this_thread::yield();
        }
      });
      for (int worker = 0; worker < kThreads; ++worker) {
        EXPECT_EQ(first[worker].load(), count / kThreads * worker);
      }
    }
  }
}

// A thread that is stuck in its first range leaves all the rest to the other, whose ranges become
// smaller down to a grain.
TEST(ThreadTeam, LeavesLittleToASlowThread) {
  constexpr int64_t kCount = 256, kGrain = 2, kShare = kCount / 2;
  ThreadTeam team(2);
  std::atomic<bool> stuck{false};
  std::atomic<int64_t> done{0};
  std::vector<std::pair<int64_t, int64_t>> ranges;  // of the other thread, by begin and size
  team.parallel_for(kCount, kGrain, [&](int64_t begin, int64_t end, int) {
    if (!stuck.exchange(true)) {
      EXPECT_EQ(end - begin, kShare / 4);
      while (done.load() < kCount - (end - begin)) std::this_thread::yield();
      return;
    }
    ranges.emplace_back(begin, end - begin);
    done.fetch_add(end - begin);
  });
  EXPECT_EQ(done.load(), kCount - kShare / 4);
  for (size_t i = 1; i < ranges.size(); ++i) {
    const bool same_share = ranges[i].first / kShare == ranges[i - 1].first / kShare;
    if (same_share) {
      EXPECT_LE(ranges[i].second, ranges[i - 1].second) << i;
    } else {
      EXPECT_EQ(ranges[i - 1].second, kGrain);
    }
  }
  EXPECT_EQ(ranges.back().second, kGrain);
}

TEST(ThreadTeam, NoTwoBodiesShareAWorkerIndex) {
  ThreadTeam team(4);
  std::vector<std::atomic<int>> inside(4);
  std::atomic<bool> shared{false};
  for (int round = 0; round < 200; ++round) {
    team.parallel_for(64, 1, [&](int64_t, int64_t, int worker) {
      auto& mine = inside[static_cast<size_t>(worker)];
      if (mine.fetch_add(1) != 0) shared = true;
      if (round % 50 == 0) wait_some(20);
      mine.fetch_sub(1);
    });
  }
  EXPECT_FALSE(shared);
}

TEST(ThreadTeam, UsesItsThreadsWhenBodiesBlock) {
  // Each body waits until three have begun: passes only if three threads take part.
  ThreadTeam team(3);
  std::atomic<int> begun{0};
  team.parallel_for(3, 1, [&](int64_t, int64_t, int) {
    begun.fetch_add(1);
    while (begun.load() < 3) std::this_thread::yield();
  });
  EXPECT_EQ(begun.load(), 3);
}

// Far more threads than processors, most of which come too late for loops as short as these: no
// loop may run an index twice, lose one, or be entered by a thread that was called for another.
TEST(ThreadTeam, RunsShortLoopsWholeWhoeverComesLate) {
  ThreadTeam team(16);
  std::vector<int64_t> runs(32);
  for (int64_t round = 0; round < 3000; ++round) {
    const int64_t count = 2 + round % 31;
    team.parallel_for(count, 1, [&, round](int64_t begin, int64_t end, int) {
      for (int64_t i = begin; i < end; ++i) {
        auto& run = runs[static_cast<size_t>(i)];
        run = run == round ? round + 1 : -1;
      }
    });
    for (int64_t i = 0; i < count; ++i) ASSERT_EQ(runs[static_cast<size_t>(i)], round + 1) << i;
    std::fill(runs.begin(), runs.end(), round + 1);
  }
}

TEST(ThreadTeam, RunsANestedLoopInlineOnTheSameWorker) {
  ThreadTeam team(3);
  std::atomic<int64_t> sum{0};
  std::atomic<bool> same{true};
  team.parallel_for(20, 1, [&](int64_t begin, int64_t end, int outer) {
    const auto thread = std::this_thread::get_id();
    team.parallel_for(100, 1, [&](int64_t inner_begin, int64_t inner_end, int inner) {
      if (inner != outer || std::this_thread::get_id() != thread) same = false;
      sum.fetch_add((inner_end - inner_begin) * (end - begin));
    });
  });
  EXPECT_TRUE(same);
  EXPECT_EQ(sum.load(), 2000);
}

TEST(ThreadTeam, KeepsWorkerIndicesOfAnotherTeamInItsBounds) {
  ThreadTeam large(4);
  ThreadTeam small(2);
  std::atomic<bool> good{true};
  std::atomic<int64_t> sum{0};
  large.parallel_for(40, 1, [&](int64_t begin, int64_t end, int) {
    for (int64_t i = begin; i < end; ++i) {
      small.parallel_for(10, 1, [&](int64_t inner_begin, int64_t inner_end, int worker) {
        if (worker < 0 || worker >= small.size()) good = false;
        sum.fetch_add(inner_end - inner_begin);
      });
      // Back in the body of the large team, where nesting is inline again.
      large.parallel_for(1, 1, [&](int64_t, int64_t, int) { sum.fetch_add(1); });
    }
  });
  EXPECT_TRUE(good);
  EXPECT_EQ(sum.load(), 40 * 11);
}

TEST(ThreadTeam, TakesCallersInTurns) {
  ThreadTeam team(3);
  std::atomic<int> loops_running{0};
  std::atomic<bool> overlapped{false};
  std::vector<int64_t> sums(4, 0);
  std::vector<std::thread> callers;
  for (size_t caller = 0; caller < sums.size(); ++caller) {
    callers.emplace_back([&, caller] {
      Rng rng(caller);
      for (int round = 0; round < 50; ++round) {
        std::atomic<int64_t> sum{0};
        std::atomic<bool> entered{false};
        team.parallel_for(100, 1, [&](int64_t begin, int64_t end, int) {
          if (!entered.exchange(true) && loops_running.fetch_add(1) != 0) overlapped = true;
          if (sum.fetch_add(end - begin) + end - begin == 100) loops_running.fetch_sub(1);
        });
        sums[caller] += sum.load();
        wait_some(rng.below(100));
      }
    });
  }
  for (auto& caller : callers) caller.join();
  EXPECT_FALSE(overlapped);
  for (const int64_t sum : sums) EXPECT_EQ(sum, 50 * 100);
}

TEST(ThreadTeam, LosesNothingUnderRandomDelays) {
  // Delays before, in and between loops, so that workers are met spinning, parked and late.
  const uint64_t seed = 5;
  SCOPED_TRACE(seed);
  Rng rng(seed);
  ThreadTeam team(4);
  for (int round = 0; round < 150; ++round) {
    const auto count = static_cast<int64_t>(1 + rng.below(40));
    std::vector<uint64_t> delays(static_cast<size_t>(count));
    for (uint64_t& delay : delays) delay = rng.below(4) == 0 ? rng.below(300) : 0;
    std::vector<int> runs(static_cast<size_t>(count), 0);  // not atomic: each index has one runner
    team.parallel_for(count, 1, [&](int64_t begin, int64_t end, int) {
      for (int64_t i = begin; i < end; ++i) {
        if (delays[static_cast<size_t>(i)] > 0) wait_some(delays[static_cast<size_t>(i)]);
        ++runs[static_cast<size_t>(i)];
      }
    });
    for (const int run : runs) ASSERT_EQ(run, 1);  // visible to the caller without more ado
    if (rng.below(3) == 0) wait_some(rng.below(1000));
  }
}

TEST(ThreadTeam, EndsWhileItsThreadsAreParkedSpinningOrNew) {
  for (int round = 0; round < 30; ++round) {
    ThreadTeam team(3);
    if (round % 3 == 1) team.parallel_for(10, 1, [](int64_t, int64_t, int) {});
    if (round % 3 == 2) wait_some(500);
  }
}

TEST(ThreadTeamDeathTest, NeedsAThread) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_DEATH(ThreadTeam(0), "a team needs a thread");
}

}  // namespace
}  // namespace jige
