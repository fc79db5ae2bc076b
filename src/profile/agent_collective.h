// An agent, or a process of this machine, as one rank of an all-reduce, along rings or by double
// trees, or of an all-to-all in rounds: what a plan is for, run.
//
//   Meeting meeting;
//   if (auto reply = answer_collective(message, meeting, "tcp")) send(*reply);
//
// Joins the group, checks the result of one operation element by element, then times as many as
// asked, each after a barrier. The group stays: whoever leaves while others still wait for what is
// on its way counts as lost, so it is left only when all have answered. Threads: one caller.
#pragma once

#include <atomic>
#include <optional>
#include <string>

#include "base/result.h"
#include "comm/communicator.h"
#include "comm/socket.h"
#include "profile/agent_protocol.h"

namespace jige::profile {

// Of the ranks of a collective: where they meet, if here, and the group once they have.
struct Meeting {
  std::optional<comm::Listener> listener;
  std::optional<comm::Communicator> group;
};

// Answers ListenMessage and CollectMessage; nothing for another message. Whatever is asked, the
// group before is left: whoever asks has all answers. `transport` is join.h's; once `cancelled` is
// set, if it is there, waiting for other ranks ends, and they hear of it.
std::optional<AgentMessage> answer_collective(const AgentMessage& message, Meeting& meeting,
                                              const std::string& transport,
                                              const std::atomic<bool>* cancelled = nullptr);

}  // namespace jige::profile
