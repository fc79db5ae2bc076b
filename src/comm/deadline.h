// Deadline: the moment by which something must have happened, on the monotonic clock.
//
//   const Deadline deadline = Deadline::after(5.0);
//   while (!done()) {
//     if (deadline.passed()) return fail(…);
//     poll(&entry, 1, deadline.poll_ms());
//   }
//
// Threads: values.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>

#include "base/clock.h"

namespace jige::comm {

inline int64_t monotonic_ns() { return RealClock().now_ns(); }

class Deadline {
 public:
  // REQUIRES: seconds >= 0. What lies more than a year ahead never comes.
  static Deadline after(double seconds) {
    if (seconds > 3e7) return Deadline(std::numeric_limits<int64_t>::max());
    return Deadline(monotonic_ns() + static_cast<int64_t>(seconds * 1e9));
  }
  static Deadline at_ns(int64_t ns) { return Deadline(ns); }

  int64_t ns() const { return ns_; }
  bool passed() const { return monotonic_ns() >= ns_; }
  // What is left, never negative.
  int64_t left_ns() const { return std::max<int64_t>(0, ns_ - monotonic_ns()); }
  // What is left for poll(2), rounded up, a second at most.
  int poll_ms() const {
    return static_cast<int>(std::min<int64_t>(1000, (left_ns() + 999'999) / 1'000'000));
  }
  Deadline earlier(Deadline other) const { return Deadline(std::min(ns_, other.ns_)); }

 private:
  explicit Deadline(int64_t ns) : ns_(ns) {}
  int64_t ns_;
};

}  // namespace jige::comm
