// Deadline: the moment by which something must have happened, on the monotonic clock; with a flag,
// the moment at which somebody sets it, if that is earlier.
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
#include <atomic>
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

  // The same, passed as soon as the flag is set. Null: never by a flag.
  Deadline unless(const std::atomic<bool>* cancelled) const {
    Deadline copy = *this;
    copy.cancelled_ = cancelled;
    return copy;
  }

  int64_t ns() const { return ns_; }
  bool cancelled() const { return cancelled_ != nullptr && *cancelled_; }
  bool passed() const { return cancelled() || monotonic_ns() >= ns_; }
  // What is left, never negative.
  int64_t left_ns() const { return cancelled() ? 0 : std::max<int64_t>(0, ns_ - monotonic_ns()); }
  // What is left for poll(2), rounded up, a second at most; with a flag no longer than it may be
  // overlooked.
  int poll_ms() const {
    const int64_t most = cancelled_ != nullptr ? kLookMs : 1000;
    return static_cast<int>(std::min<int64_t>(most, (left_ns() + 999'999) / 1'000'000));
  }
  // Whichever comes first, with this one's flag.
  Deadline earlier(Deadline other) const {
    return Deadline(std::min(ns_, other.ns_)).unless(cancelled_);
  }

 private:
  static constexpr int64_t kLookMs = 50;

  explicit Deadline(int64_t ns) : ns_(ns) {}
  int64_t ns_;
  const std::atomic<bool>* cancelled_ = nullptr;
};

}  // namespace jige::comm
