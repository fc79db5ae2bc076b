// Pace: asks during long work on pixels, every so many of them, whether to go on.
//
//   Pace pace(go_on);
//   for (…each row…) {
//     if (!pace.step(width)) return tl::unexpected(pace.status().error());
//     …
//   }
//
// Invariant: once it said no it says no for ever, and status() why. It throws nothing and leaves
// nothing on the stack, so it may be asked between a setjmp and its longjmp.
// Threads: one.
#pragma once

#include <cstdint>

#include "base/go_on.h"

namespace jige::images {

class Pace {
 public:
  // REQUIRES: the question outlives it.
  explicit Pace(const GoOn& go_on) : go_on_(go_on) {}

  // Work on so many more pixels begins. False: it is to end.
  bool step(int64_t pixels) {
    pixels_ += pixels;
    if (pixels_ < kPixels) return status_.has_value();
    pixels_ = 0;
    return ask();
  }
  // Asks now.
  bool ask() {
    if (status_) status_ = may_go_on(go_on_);
    return status_.has_value();
  }
  const Status& status() const { return status_; }

 private:
  static constexpr int64_t kPixels = int64_t{1} << 18;  // milliseconds of any work here
  const GoOn& go_on_;
  int64_t pixels_ = 0;
  Status status_;
};

}  // namespace jige::images
