// Where the ranks of an MPI program are put that measures what lies between them: processors and
// NUMA nodes of this machine (local_places.h), or other hosts.
//
//   JIGE_TRY(const auto places, parse_mpi_places("4", processors, "--mpi"));
//   JIGE_TRY(const auto places, parse_mpi_places("a=host:node1,host:node2", processors, "--mpi"));
//
// Hosts are those that mpirun's --host takes, one rank each. Invariants: 2 to 64 places, names once
// each; hosts or places of this machine, not both. Threads: pure functions.
#pragma once

#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "profile/local_places.h"

namespace jige::profile {

struct MpiPlace {
  LocalPlace place;  // of another host: its name alone
  std::string host;  // empty: this machine
};

// Fails with kInvalidArgument, naming `where` and the entry.
Result<std::vector<MpiPlace>> parse_mpi_places(std::string_view text,
                                               std::span<const Processor> processors,
                                               std::string_view where);

// Hosts around one router, every rate unlimited.
topology::Description mpi_description(std::span<const MpiPlace> places,
                                      std::map<std::string, std::string> environment);

}  // namespace jige::profile
