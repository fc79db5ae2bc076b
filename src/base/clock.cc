#include "base/clock.h"

#include <chrono>

#include "base/check.h"

namespace jige {

int64_t RealClock::now_ns() const {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

void VirtualClock::advance(int64_t delta_ns) {
  JIGE_CHECK(delta_ns >= 0, "virtual time cannot go back by {} ns", -delta_ns);
  now_ns_ += delta_ns;
}

double unix_now_s() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

StopWatch::StopWatch() : start_ns_(RealClock().now_ns()) {}

double StopWatch::seconds() const { return seconds_between(start_ns_, RealClock().now_ns()); }

}  // namespace jige
