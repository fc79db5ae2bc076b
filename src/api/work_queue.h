// WorkQueue: a few threads for what would hold up the server's own: parsing and tokenising large
// requests, writing out large answers. Bounded in jobs and in the bytes they keep alive. A body
// takes some twenty times its size while it is read; behind a large job what is free goes back to
// the system, so that no client's request is what the server weighs from then on.
//
// Threads: try_push from any thread; stop() once, from the thread that owns the queue.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace jige::api {

class WorkQueue {
 public:
  struct Limits {
    int thread_count = 2;
    size_t jobs_max = 1024;
    size_t bytes_max = size_t{64} << 20;
  };
  explicit WorkQueue(Limits limits);
  ~WorkQueue() { stop(); }
  WorkQueue(const WorkQueue&) = delete;
  WorkQueue& operator=(const WorkQueue&) = delete;

  // Runs `job` soon. False, and `job` is untouched, when there is no room for it or the queue has
  // stopped. A job larger than bytes_max is taken when the queue is empty.
  bool try_push(std::function<void()>& job, size_t bytes);
  // Takes no more, runs what waits, and joins the threads.
  void stop();

 private:
  struct Item {
    std::function<void()> job;
    size_t bytes = 0;
  };
  void work();

  const Limits limits_;
  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<Item> items_;
  size_t bytes_ = 0;  // of items waiting and running
  bool stopped_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace jige::api
