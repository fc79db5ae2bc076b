// LateQueue: the work of one stream of the emulated GPU on a thread of its own, copies later than
// they could be: so that whoever uses what a stream has not done yet is found out.
//
// Threads: put() by one thread at a time; events from any.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>

#include "base/rng.h"
#include "tensor/device.h"

namespace jige::cuda::emulation {

class LateQueue {
 public:
  explicit LateQueue(uint64_t seed) : rng_(seed), thread_([this] { main(); }) {}
  // Runs what is left.
  ~LateQueue();
  LateQueue(const LateQueue&) = delete;
  LateQueue& operator=(const LateQueue&) = delete;

  void put(std::function<void()> work);
  // Some time later.
  void put_late(std::function<void()> work);
  Event record();

 private:
  void main();

  Rng rng_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> work_;
  bool ending_ = false;
  std::thread thread_;  // last, as it uses the rest
};

}  // namespace jige::cuda::emulation
