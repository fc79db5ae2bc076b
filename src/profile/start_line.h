// Waiting for a moment of the monotonic clock, so that what starts there starts within
// microseconds of it: asleep for most of the way, then looking at the clock.
//
// Threads: any.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <thread>

#include "comm/deadline.h"

namespace jige::profile {

inline constexpr int64_t kStartSpinNs = 200'000;

inline constexpr int64_t kStartLookNs = 50'000'000;

// Returns early once the flag is set, if there is one.
inline void wait_until(int64_t start_ns, const std::atomic<bool>* cancelled = nullptr) {
  for (int64_t left; (left = start_ns - comm::monotonic_ns()) > 0;) {
    if (cancelled != nullptr && *cancelled) return;
    if (left > kStartSpinNs) {
      const int64_t nap = std::min(left - kStartSpinNs, kStartLookNs);
      std::this_thread::sleep_for(std::chrono::nanoseconds(nap));
    }
  }
}

}  // namespace jige::profile
