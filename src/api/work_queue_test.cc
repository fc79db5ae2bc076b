#include "api/work_queue.h"

#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <thread>

namespace jige::api {
namespace {

TEST(WorkQueue, RunsEveryJob) {
  std::atomic<int> done{0};
  WorkQueue queue({.thread_count = 2, .jobs_max = 1000, .bytes_max = 1000});
  std::promise<void> last;
  for (int i = 0; i < 500; ++i) {
    std::function<void()> job = [&] {
      if (++done == 500) last.set_value();
    };
    ASSERT_TRUE(queue.try_push(job, 1));
  }
  last.get_future().wait();
  EXPECT_EQ(done, 500);
}

TEST(WorkQueue, RefusesBeyondItsLimitsAndKeepsTheJobWhole) {
  std::promise<void> gate;
  const std::shared_future<void> open = gate.get_future().share();
  std::promise<void> begun;
  WorkQueue queue({.thread_count = 1, .jobs_max = 2, .bytes_max = 100});
  std::function<void()> first = [&] {
    begun.set_value();
    open.wait();
  };
  ASSERT_TRUE(queue.try_push(first, 500)) << "an empty queue takes one job of any size";
  begun.get_future().wait();
  std::function<void()> job = [] {};
  EXPECT_FALSE(queue.try_push(job, 1)) << "its bytes count while it runs";
  EXPECT_TRUE(job);
  gate.set_value();
}

TEST(WorkQueue, BoundsTheJobsThatWait) {
  std::promise<void> gate;
  const std::shared_future<void> open = gate.get_future().share();
  std::promise<void> begun;
  WorkQueue queue({.thread_count = 1, .jobs_max = 2, .bytes_max = 100});
  std::function<void()> first = [&] {
    begun.set_value();
    open.wait();
  };
  ASSERT_TRUE(queue.try_push(first, 1));
  begun.get_future().wait();
  for (int i = 0; i < 3; ++i) {
    std::function<void()> job = [] {};
    EXPECT_EQ(queue.try_push(job, 1), i < 2);
  }
  gate.set_value();
}

TEST(WorkQueue, RunsWhatWaitsWhenItStops) {
  std::promise<void> gate;
  const std::shared_future<void> open = gate.get_future().share();
  std::atomic<int> ran{0};
  WorkQueue queue({.thread_count = 1});
  for (int i = 0; i < 3; ++i) {
    std::function<void()> job = [&] {
      open.wait();
      ++ran;
    };
    ASSERT_TRUE(queue.try_push(job, 1));
  }
  std::thread stopper([&] { queue.stop(); });
  std::function<void()> late = [] {};
  while (queue.try_push(late, 0)) late = [] {};
  gate.set_value();
  stopper.join();
  EXPECT_EQ(ran, 3);
}

}  // namespace
}  // namespace jige::api
