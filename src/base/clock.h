// Time as a dependency: real for the runtime, virtual for simulators and tests.
//
// Threads: RealClock from any thread; VirtualClock belongs to one thread.
#pragma once

#include <cstdint>

namespace jige {

class Clock {
 public:
  virtual ~Clock() = default;
  // Nanoseconds since an arbitrary start; never goes back.
  virtual int64_t now_ns() const = 0;
};

class RealClock final : public Clock {
 public:
  int64_t now_ns() const override;
};

class VirtualClock final : public Clock {
 public:
  int64_t now_ns() const override { return now_ns_; }
  // REQUIRES: delta_ns >= 0.
  void advance(int64_t delta_ns);

 private:
  int64_t now_ns_ = 0;
};

inline double seconds_between(int64_t from_ns, int64_t to_ns) {
  return static_cast<double>(to_ns - from_ns) * 1e-9;
}
// Seconds since 1970, as the machine has them: for people and other machines, not for durations.
double unix_now_s();

// Seconds since construction, from the monotonic clock.
class StopWatch {
 public:
  StopWatch();
  double seconds() const;

 private:
  int64_t start_ns_;
};

}  // namespace jige
