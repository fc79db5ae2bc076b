// JobLine: jobs that a thread of its own runs one after the other.
//
// Behind a job that failed none runs any more. Threads: put() and drain() from any.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>

#include "base/result.h"

namespace jige::train {

class JobLine {
 public:
  using Job = std::function<Status()>;

  JobLine() : thread_([this] { main(); }) {}
  // Ends the job that runs; those behind it do not run.
  ~JobLine();
  JobLine(const JobLine&) = delete;
  JobLine& operator=(const JobLine&) = delete;

  void put(Job job);
  // Returns when nothing is left to do; with the error of the job that failed, if one did.
  Status drain();

 private:
  void main();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Job> jobs_;  // the first one runs
  Status status_;
  bool ending_ = false;
  std::thread thread_;  // last, as it uses the rest
};

}  // namespace jige::train
