// Messages of agent_protocol.h over standard input and output, for a program that mpirun started.
//
//   FramePipe profiler = FramePipe::standard();
//   JIGE_TRY(const std::optional<AgentMessage> message, profiler.receive());   // nothing: the end
//
// What else writes to standard output goes to standard error from then on, so that it does not
// get between frames. Threads: one.
#pragma once

#include <optional>

#include "base/result.h"
#include "profile/agent_protocol.h"

namespace jige::profile {

class FramePipe {
 public:
  static FramePipe standard();
  FramePipe(int in, int out) : in_(in), out_(out) {}

  // Waits. Fails with kCorrupt on what is no message, kIo where reading fails.
  Result<std::optional<AgentMessage>> receive();
  Status send(const AgentMessage& message);

 private:
  // Whether all of it came; false: the end, before the first byte.
  Result<bool> read_all(std::span<std::byte> bytes) const;

  int in_, out_;
};

}  // namespace jige::profile
