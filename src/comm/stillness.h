// Stillness: how long nothing has moved, for who waits and looks every now and then.
//
//   Stillness still;
//   for (;;) { if (moved()) still.note_movement(); … wait a tenth of a second … still.look(); }
//
// Where two looks are far apart, this rank did not run between them: it was stopped, as schedulers
// stop whole jobs, and the others with it. Nobody is to blame for that time, so it counts anew.
// Threads: one thread.
#pragma once

#include <cstdint>

#include "comm/deadline.h"

namespace jige::comm {

class Stillness {
 public:
  void note_movement() { since_ns_ = looked_ns_ = monotonic_ns(); }
  // REQUIRES: called much more often than every second while this rank runs.
  void look() {
    constexpr int64_t kStoppedNs = 1'000'000'000;
    const int64_t now = monotonic_ns();
    if (now - looked_ns_ > kStoppedNs) since_ns_ = now;
    looked_ns_ = now;
  }
  int64_t since_ns() const { return since_ns_; }
  double seconds() const { return static_cast<double>(monotonic_ns() - since_ns_) * 1e-9; }

 private:
  int64_t since_ns_ = monotonic_ns();
  int64_t looked_ns_ = since_ns_;
};

}  // namespace jige::comm
