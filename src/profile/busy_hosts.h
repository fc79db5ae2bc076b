// Finds the hosts whose processors had hardly any time left while their links were measured: there
// rates say what the host can process, and not what its links carry. Shaping, encryption and small
// packets take processors long before the links are full.
//
//   busy.add(host, time_of_a_run);
//   for (const size_t host : busy.take()) log_warn(…);   // each host once
//
// Threads: one caller.
#pragma once

#include <cstddef>
#include <vector>

#include "base/processor_time.h"

namespace jige::profile {

class BusyHosts {
 public:
  explicit BusyHosts(size_t hosts) : seen_(hosts) {}

  void add(size_t host, const ProcessorTime& during_run);
  // Those found since they were last taken, in order.
  std::vector<size_t> take();
  double idle_share(size_t host) const { return seen_[host].time.idle_share(); }

 private:
  struct Seen {
    ProcessorTime time;
    bool told = false;
  };
  std::vector<Seen> seen_;
};

}  // namespace jige::profile
