// Finds the hosts whose processors had hardly any time left while their links were measured: there
// rates say what the host can process, and not what its links carry. Shaping, encryption and small
// packets take processors long before the links are full.
//
//   busy.add(host, time_of_a_run);
//   busy.warn();   // of each host once
//
// Threads: one caller.
#pragma once

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "base/processor_time.h"

namespace jige::profile {

class BusyHosts {
 public:
  explicit BusyHosts(std::vector<std::string> names)
      : names_(std::move(names)), seen_(names_.size()) {}

  void add(size_t host, const ProcessorTime& during_run);
  // Those found since they were last taken, in order, each with its idle share.
  std::vector<std::string> take();
  // Logs a warning that names them, if there are any.
  void warn();

 private:
  struct Seen {
    ProcessorTime time;
    bool told = false;
  };
  std::vector<std::string> names_;
  std::vector<Seen> seen_;
};

}  // namespace jige::profile
