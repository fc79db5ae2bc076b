// The dead-man timer: when a scheduler's heartbeat stands still, held jobs are released without
// nodes, so that Slurm schedules them as if there were no Jige.
//
// It is a process of its own (`jige cluster dead-man`), which `jige cluster run` starts beside
// itself; it may run on another machine as well, under systemd. Time is counted by its own
// monotonic clock since it last saw the heartbeat change: clocks that jump do not matter.
// A scheduler that comes back takes the jobs that have not started in hand again, and starts a
// timer of its own: one that belongs to a scheduler, by its epoch, then ends, so that they do not
// pile up.
//
// Threads: one thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "slurm/backend.h"

namespace jige::slurm {

class DeadManTimer {
 public:
  enum class Verdict : uint8_t { kAlive, kDead, kEnded, kFollowed };

  // Without an epoch it belongs to no scheduler, and none follows.
  DeadManTimer(double limit_s, std::optional<int64_t> epoch, int64_t now_ns)
      : limit_s_(limit_s), epoch_(epoch), changed_ns_(now_ns) {}

  // `heartbeat` is the file's text, empty where it cannot be read.
  Verdict look(const std::string& heartbeat, int64_t now_ns);

 private:
  double limit_s_;
  std::optional<int64_t> epoch_;
  std::string last_;
  int64_t changed_ns_;
};

// Releases every job of the partition that Jige or the submission held. How many; fails with
// kUnavailable where Slurm does not answer, and may be called again.
Result<int64_t> release_held(Backend& backend, const std::string& partition);

}  // namespace jige::slurm
