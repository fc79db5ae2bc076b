// An agent as one rank of an all-reduce, along rings or by double trees, or of an all-to-all in
// rounds: what a plan is for, run between the hosts.
//
//   JIGE_TRY(comm::Listener meeting, comm::Listener::open({"10.0.0.1", 0}));   // rank 0 alone
//   std::optional<comm::Communicator> group;
//   JIGE_TRY(const CollectedMessage times, run_collective(message, &meeting, group));
//
// Joins the group, checks the result of one operation element by element, then times as many as
// asked, each after a barrier. The group stays: whoever leaves while others still wait for what is
// on its way counts as lost, so it is left only when all have answered. Threads: one caller.
#pragma once

#include <optional>

#include "base/result.h"
#include "comm/communicator.h"
#include "comm/socket.h"
#include "profile/agent_protocol.h"

namespace jige::profile {

// `meeting` is where the others come to: of rank 0, null for all others. Fails with
// kInvalidArgument without one, kCorrupt for a wrong result, and as joining and the operation do.
Result<CollectedMessage> run_collective(const CollectMessage& message, comm::Listener* meeting,
                                        std::optional<comm::Communicator>& group);

}  // namespace jige::profile
