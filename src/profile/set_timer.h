// Times a set of transfers that some meter can run: finds out how much to send, repeats until the
// mean can be trusted, and makes a Measurement of it. Every meter of real transfers ends here.
//
//   JIGE_TRY(const TimedSet timed, time_set({.run_s = 0.1}, shares, [&](int64_t bytes) {
//     return run_once(bytes);   // all members at once, member i with bytes * shares[i]
//   }));
//
// A run does not begin once `cancelled` is set. The first runs only find the size, where none is
// given; what they take is counted as cost. A series in which the rate changed is begun anew
// (repeats.h). Threads: one caller.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "base/result.h"
#include "profile/link_meter.h"
#include "profile/repeats.h"

namespace jige::profile {

// What one run of a set took.
struct SetRun {
  double makespan_s = 0;         // from the first start to the last end
  std::vector<double> member_s;  // of each member, from its own start
};

// Of when members began and ended, on one clock. Fails with kCorrupt where something took no time.
struct FlowTimes {
  int64_t begin_ns = 0, end_ns = 0;
};
Result<SetRun> set_run(std::span<const FlowTimes> times);

struct SetTiming {
  int64_t bytes = 0;    // of a whole; 0: what takes `run_s`
  double run_s = 0.12;  // down to half of it where a set gets little time, for a dozen to fit
  int64_t probe_bytes = int64_t{256} * 1024;
  int64_t bytes_max = int64_t{1} << 34;
  RepeatLimits repeats;
  const std::atomic<bool>* cancelled = nullptr;
};

struct TimedSet {
  Measurement measurement;
  int64_t bytes = 0;    // of a whole, in the timed runs
  int32_t changes = 0;  // series begun anew
};

// The bytes that member i carries of a whole: at least one.
int64_t member_bytes(int64_t bytes, double share);

// Fails with kCancelled when the flag is set. Null: none.
Status check_cancelled(const std::atomic<bool>* cancelled);

// Fails as `run` does, and with kCancelled.
Result<TimedSet> time_set(const SetTiming& timing, std::span<const double> shares,
                          const std::function<Result<SetRun>(int64_t bytes)>& run);

}  // namespace jige::profile
