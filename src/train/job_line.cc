#include "train/job_line.h"

#include <utility>

namespace jige::train {

JobLine::~JobLine() {
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void JobLine::put(Job job) {
  {
    const std::lock_guard lock(mutex_);
    if (!status_) return;
    jobs_.push_back(std::move(job));
  }
  changed_.notify_all();
}

Status JobLine::drain() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return jobs_.empty(); });
  return status_;
}

void JobLine::main() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return ending_ || !jobs_.empty(); });
    if (ending_) return;
    const Job job = std::move(jobs_.front());
    lock.unlock();
    Status done = job();
    lock.lock();
    jobs_.pop_front();
    if (!done) {
      status_ = std::move(done);
      jobs_.clear();
    }
    changed_.notify_all();
  }
}

}  // namespace jige::train
