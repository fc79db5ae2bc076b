// For tests of what a computation costs: unlike time on the clock, it does not grow where other
// programs share the processors.
//
// Threads: one.
#pragma once

#include <time.h>

namespace jige {

// Seconds of processors that all threads of this process have used since construction.
class ProcessorWatch {
 public:
  double seconds() const { return used_s() - start_s_; }

 private:
  static double used_s() {
    timespec used = {};
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
    return static_cast<double>(used.tv_sec) + static_cast<double>(used.tv_nsec) * 1e-9;
  }

  const double start_s_ = used_s();
};

}  // namespace jige
