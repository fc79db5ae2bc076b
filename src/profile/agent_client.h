// A profiler's connection to the agent of one host.
//
//   JIGE_TRY(AgentClient a, AgentClient::connect(host, {.token = token}));
//   JIGE_DO(a.open_flow(0, other.address, "bbr"));
//   JIGE_DO(a.start_run({.flows = {0}, .bytes = bytes, .start_ns = soon}));   // our clock
//   JIGE_TRY(const auto times, a.finish_run(deadline));                        // our clock
//
// Clocks are compared by asking for the agent's several times; the answer that came fastest counts,
// so times are off by at most half of that round trip. Every error names the host and its agent.
// Threads: one thread.
#pragma once

#include <atomic>
#include <string>
#include <vector>

#include "base/result.h"
#include "comm/socket.h"
#include "profile/agent_protocol.h"
#include "profile/host_list.h"

namespace jige::profile {

struct AgentClientOptions {
  std::string token;
  double timeout_s = 10;  // of every question but a run
};

class AgentClient {
 public:
  // Tries again while the agent is not there or busy, until the timeout. Fails with kUnavailable,
  // kInvalidArgument (token), kUnsupported (version).
  static Result<AgentClient> connect(const Host& host, const AgentClientOptions& options);

  const Host& host() const { return host_; }
  const std::string& kernel() const { return welcome_.kernel; }
  const std::vector<std::string>& congestion() const { return welcome_.congestion; }

  Status compare_clocks(int questions);
  // Half the round trip of the answer that counts.
  int64_t clock_error_ns() const { return clock_error_ns_; }

  Status open_flow(int64_t flow, const comm::Address& to, const std::string& congestion);
  Status start_run(RunMessage message);
  // Times are of the clock here.
  Result<RanMessage> finish_run(comm::Deadline deadline);
  // The port at which this host, as rank 0 of an all-reduce, waits for the others.
  Result<int> listen();
  Status start_collective(const CollectMessage& message);
  Result<std::vector<int64_t>> finish_collective(comm::Deadline deadline);
  // As await_answer() in agent_wire.h.
  Status await(comm::Deadline deadline, const std::atomic<bool>* cancelled) const;
  // Whether the agent runs: it has not hung up, and welcomes another connection.
  bool is_there(double seconds) const;

 private:
  AgentClient(Host host, AgentClientOptions options, comm::Socket socket, WelcomeMessage welcome);
  comm::Deadline soon() const { return comm::Deadline::after(options_.timeout_s); }

  Host host_;
  AgentClientOptions options_;
  comm::Socket socket_;
  WelcomeMessage welcome_;
  int64_t ahead_ns_ = 0;  // the agent's clock less ours
  int64_t clock_error_ns_ = 0;
};

}  // namespace jige::profile
