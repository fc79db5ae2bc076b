// Where processes of this machine are put to measure what lies between them: processors and NUMA
// nodes, under names.
//
//   JIGE_TRY(const auto processors, usable_processors());
//   JIGE_TRY(const auto places, parse_places("a=cpu0,b=cpu8,numa1", processors, "--shm"));
//   JIGE_TRY(const auto places, parse_places("4", processors, "--shm"));   // rank0 … rank3
//
// A number spreads that many processes over the NUMA nodes in turn, one processor each as long as
// there are any. Invariants: 2 to 64 places, names once each. Threads: pure functions, but for the
// files that usable_processors reads.
#pragma once

#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "topology/description.h"

namespace jige::profile {

struct Processor {
  int number = 0;
  int numa = 0;
};

// Those this process may run on, in order, with the nodes that sysfs shows (0 where it does not).
std::vector<Processor> usable_processors(const std::string& sysfs = "/sys");

struct LocalPlace {
  std::string name;             // of the host component that stands for the process
  std::vector<int> processors;  // it may run on
  int numa = 0;                 // of the first of them

  std::string text() const;  // "processor 3, NUMA node 0"
};

std::vector<std::string> place_names(std::span<const LocalPlace> places);

// Fails with kInvalidArgument, naming `where` and the entry.
Result<std::vector<LocalPlace>> parse_places(std::string_view text,
                                             std::span<const Processor> processors,
                                             std::string_view where);

// Lets the calling thread run there alone. Fails with kUnavailable.
Status pin_to(const LocalPlace& place);

// Hosts around one router "memory", every rate unlimited: nothing is claimed that was not measured.
topology::Description places_description(std::span<const LocalPlace> places,
                                         std::map<std::string, std::string> environment);

}  // namespace jige::profile
