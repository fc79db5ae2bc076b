// A rank of the program that mpirun starts for a profiler (mpi_meter.h).
//
// Rank 0 speaks with the profiler over standard input and output, in frames of agent_protocol.h:
// it says which ranks there are, takes a RunMessage at a time, and answers with the times of all
// its flows. The others hear from rank 0 alone. Who takes part in a run says that it is ready, then
// rank 0 lets all go; times count from there, the beginning of a flow from its sender's go and its
// end to its receiver's. Ranks that wait for an order sleep, so that they cost those that move data
// nothing.
//
// Anything that goes wrong is told to the profiler with the rank's name, and ends the program: what
// is still under way belongs to nobody then. Threads: one.
#pragma once

#include <string>
#include <vector>

#include "profile/mpi/mpi_streams.h"

namespace jige::profile {

// Where a rank runs: "rank0:0,2" is called rank0 and pinned to two processors, "a:" is not pinned.
struct MpiSeat {
  std::string name;
  std::vector<int> processors;
};
// Fails with kInvalidArgument.
Result<MpiSeat> parse_mpi_seat(const std::string& text);

// All of the program but its name: an argument for each rank. Gives the exit code.
int mpi_rank_main(int argc, char** argv, const MpiRankOptions& options);

}  // namespace jige::profile
