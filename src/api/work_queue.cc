#include "api/work_queue.h"

#include <malloc.h>

#include <utility>

#include "base/log.h"

namespace jige::api {
namespace {

// Jobs below it leave little behind, and come too often.
constexpr size_t kLargeJobBytes = size_t{1} << 20;

}  // namespace

WorkQueue::WorkQueue(Limits limits) : limits_(limits) {
  for (int i = 0; i < limits_.thread_count; ++i) threads_.emplace_back([this] { work(); });
}

bool WorkQueue::try_push(std::function<void()>& job, size_t bytes) {
  {
    const std::lock_guard lock(mutex_);
    const bool full =
        items_.size() >= limits_.jobs_max || (bytes_ > 0 && bytes_ + bytes > limits_.bytes_max);
    if (stopped_ || full) return false;
    bytes_ += bytes;
    items_.push_back({std::move(job), bytes});
  }
  wake_.notify_one();
  return true;
}

void WorkQueue::work() {
  for (;;) {
    Item item;
    {
      std::unique_lock lock(mutex_);
      wake_.wait(lock, [&] { return stopped_ || !items_.empty(); });
      if (items_.empty()) return;
      item = std::move(items_.front());
      items_.pop_front();
    }
    try {
      item.job();
    } catch (const std::exception& error) {
      // Memory ran out. What the job held goes with it, and its request is answered with 500.
      log_error("a request could not be read, or its answer not be written: {}", error.what());
    }
    item.job = nullptr;
    if (item.bytes >= kLargeJobBytes) malloc_trim(0);
    const std::lock_guard lock(mutex_);
    bytes_ -= item.bytes;
  }
}

void WorkQueue::stop() {
  {
    const std::lock_guard lock(mutex_);
    stopped_ = true;
  }
  wake_.notify_all();
  for (std::thread& thread : threads_) thread.join();
  threads_.clear();
}

}  // namespace jige::api
