// The messages of agent_protocol.h out of JSON, every field within its limits.
//
// Threads: pure functions.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "base/json.h"
#include "profile/agent_protocol.h"

namespace jige::profile {

// Fails with kCorrupt on what is no message, kUnsupported on an unknown type, kInvalidArgument on a
// field out of its limits, naming it.
Result<AgentMessage> message_of(const Json& json);

}  // namespace jige::profile
