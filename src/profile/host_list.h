// The hosts of a network and where their agents listen, and the network as far as one knows it
// then.
//
//   JIGE_TRY(const auto hosts, parse_hosts("a=10.0.0.1,b=10.0.0.2:9000", "--hosts"));
//   JIGE_TRY(const auto hosts, load_hosts("hosts.txt"));   // one NAME=ADDRESS[:PORT] a line, # …
//
// Invariants: at least one host, 64 at most, names and addresses each once. Threads: pure
// functions.
#pragma once

#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "comm/socket.h"
#include "topology/description.h"

namespace jige::profile {

inline constexpr int kAgentPort = 7431;

struct Host {
  std::string name;
  comm::Address address;  // of its agent; others reach the host by the same one
};

// "10.0.0.1" or "10.0.0.1:9000". Fails with kInvalidArgument, naming `where`.
Result<comm::Address> parse_agent_address(std::string_view text, std::string_view where);

// Fail with kInvalidArgument, naming `where` and the entry.
Result<std::vector<Host>> parse_hosts(std::string_view text, std::string_view where);
Result<std::vector<Host>> load_hosts(const std::string& path);

// Hosts behind one router, every rate unlimited: nothing is claimed that was not measured.
// `environment` becomes part of the fingerprint.
topology::Description hosts_description(std::span<const Host> hosts,
                                        std::map<std::string, std::string> environment);

}  // namespace jige::profile
