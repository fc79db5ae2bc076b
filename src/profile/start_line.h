// Waiting for a moment of the monotonic clock, so that what starts there starts within
// microseconds of it: asleep for most of the way, then looking at the clock.
//
// Threads: any.
#pragma once

#include <chrono>
#include <cstdint>
#include <thread>

#include "comm/deadline.h"

namespace jige::profile {

inline constexpr int64_t kStartSpinNs = 200'000;

inline void wait_until(int64_t start_ns) {
  for (int64_t left; (left = start_ns - comm::monotonic_ns()) > 0;) {
    if (left > kStartSpinNs) {
      std::this_thread::sleep_for(std::chrono::nanoseconds(left - kStartSpinNs));
    }
  }
}

}  // namespace jige::profile
