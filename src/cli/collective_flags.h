// The flags by which a command joins a group of ranks: how many are started, or which one this is,
// and over what they talk.
//
// Threads: one thread.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "comm/communicator.h"
#include "comm/join.h"

namespace jige::cli {

class Flags;

struct CollectiveFlags {
  int64_t ranks = 0;  // started here; 0: this process is one of `world`
  int64_t rank = -1;
  int64_t world = 0;
  std::string rendezvous;
  std::string bind_host;
  std::string transport = "auto";
  std::string congestion;
  std::vector<std::string> rings;  // orders, or a plan's file
  int64_t piece_bytes = 256 << 10;
  bool trees = false;             // over rank order, where no plan's file has others
  int64_t tree_bytes_max = -1;    // -1: as the plan's file says, or measured
  int64_t direct_bytes_max = -1;  // -1: measured, or from the file
  std::string tuning;
  double timeout_s = 30;

  void declare(Flags& flags);
  // Calls body with this process's or thread's part in the group, once for each rank that runs
  // here, and gives the first error that is not the echo of another. A signal ends them all.
  Status run(const std::function<Status(comm::Communicator&)>& body) const;

  // The rings of so many ranks.
  Result<comm::RingPlan> plan(int size) const;
  // This process's place, from flags or from a launcher.
  Result<comm::Place> place() const;
  comm::JoinOptions join_options(const comm::Place& place, comm::Address rendezvous) const;

 private:
  Status run_over(std::unique_ptr<comm::Transport> transport, const comm::RingPlan& plan,
                  const std::function<Status(comm::Communicator&)>& body) const;
  Status run_threads(const std::function<Status(comm::Communicator&)>& body) const;
  Status run_processes(const std::function<Status(comm::Communicator&)>& body) const;
  Status tune(comm::Communicator& group) const;
};

}  // namespace jige::cli
