// Addresses as flags have them: a host, and a port where it is not the usual one.
//
// Threads: pure functions.
#pragma once

#include <string_view>

#include "base/result.h"
#include "comm/socket.h"

namespace jige::comm {

// "HOST", "HOST:PORT" or "[HOST]:PORT". Fails with kInvalidArgument, naming `where` it stands.
Result<Address> parse_host_address(std::string_view text, int usual_port, std::string_view where);

}  // namespace jige::comm
