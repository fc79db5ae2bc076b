// Drives a load against whatever answers requests, in open loop (each is sent at its arrival) or in
// closed loop (each user sends the next one when the last is over).
//
// One thread sends and waits; the target says what time it is, so that tests run on a virtual
// clock. Latencies count from the planned arrival: a sender that is late does not flatter the
// server. Threads: drive_load runs on the caller's; targets say what theirs do.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "sim/load_report.h"
#include "sim/workload.h"

namespace jige::cli {

class LoadTarget {
 public:
  struct Finished {
    size_t index = 0;
    sim::RequestOutcome outcome;  // all but start_s
  };

  virtual ~LoadTarget() = default;
  // Seconds since the start of the load.
  virtual double now_s() const = 0;
  // Begins a request; whatever happens to it comes from wait().
  virtual void send(size_t index, const sim::RequestShape& shape) = 0;
  // Waits for something to finish, `seconds_max` at most, and appends what has.
  virtual void wait(double seconds_max, std::vector<Finished>& finished) = 0;
  // Gives up what is under way; it comes from wait() as "cancelled".
  virtual void cancel_all() = 0;
};

struct LoadRun {
  std::vector<sim::RequestOutcome> outcomes;  // by request; those that were sent
  double late_s_max = 0;                      // how far the sender fell behind its plan
  int64_t short_count = 0;                    // succeeded with fewer tokens than asked for
  bool stopped = false;
};

// `users` > 0: closed loop. `stop` ends it early. `on_progress` hears how many are over.
LoadRun drive_load(std::span<const sim::RequestShape> requests, int64_t users, LoadTarget& target,
                   const std::atomic<bool>& stop,
                   const std::function<void(int64_t over)>& on_progress = {});

}  // namespace jige::cli
