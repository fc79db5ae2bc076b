// The flows that an agent sends over, on behalf of one profiler: one connection to another agent
// each, opened and checked once, then run as often as asked.
//
// Threads: one caller; flows that run together have a thread each meanwhile.
#pragma once

#include <atomic>
#include <map>
#include <mutex>
#include <string>

#include "base/result.h"
#include "comm/socket.h"
#include "profile/agent_protocol.h"

namespace jige::profile {

class AgentFlows {
 public:
  // Once the flag is set, what waits for other hosts ends.
  AgentFlows(std::string token, const std::atomic<bool>& stopping)
      : token_(std::move(token)), stopping_(stopping) {}

  // Connects, and sends data whose every byte is checked at the other end. A flow of that number
  // is replaced. Fails with kUnavailable, kUnsupported (congestion control), kCorrupt.
  Status open(const OpenMessage& message);
  // Starts all at the time given and waits for their ends. Fails with kNotFound for a flow that was
  // not opened; one that fails is closed.
  Result<RanMessage> run(const RunMessage& message);
  // Lets a run in another thread fail soon.
  void interrupt();

 private:
  std::string token_;
  const std::atomic<bool>& stopping_;
  std::mutex mutex_;  // over the map, not over what flows do
  std::map<int64_t, comm::Socket> flows_;
};

}  // namespace jige::profile
