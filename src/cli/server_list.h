// The servers behind a router, as a person names them.
//
// Threads: pure functions; resolve_server asks the system for names.
#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "api/http_peer.h"
#include "base/result.h"

namespace jige::cli {

// Of the flag --server-ca, for commands that ask servers.
inline constexpr const char* kServerCaHelp =
    "https: the authorities (PEM) whose certificates of servers are accepted; without it those of "
    "the system";
inline constexpr size_t kServerListBytesMax = size_t{1} << 20;

// What somebody has written, and where, for messages: "servers.txt:3", "--to".
struct PlacedText {
  std::string text, place;
};

// The lines of a file, without the spaces around them; empty ones and those that begin with # are
// passed over.
std::vector<PlacedText> list_lines(std::string_view text, std::string_view file);
// The values of a flag.
std::vector<PlacedText> list_values(const std::vector<std::string>& values, std::string_view flag);

// Where a server is; `ca_file`: what --server-ca says. Fails as HttpPeer::resolve does, naming the
// place, or --server-ca where that is at fault.
Result<api::HttpPeer> resolve_server(const PlacedText& url, const std::string& ca_file);
struct ListedServer {
  api::HttpPeer peer;  // as HttpPeer::read has it
  std::string place;
};

// Likewise, without looking a host up. Fails with kInvalidArgument, too: on none, naming `where`,
// and on one that is there twice.
Result<std::vector<ListedServer>> read_servers(const std::vector<PlacedText>& urls,
                                               std::string_view where,
                                               const std::string& ca_file = "");

// The keys that servers ask for, as a file has them: a line `URL KEY` for each, and a line `KEY`
// for all that have none of their own.
class ServerKeys {
 public:
  // Of nobody.
  ServerKeys() = default;
  // Fails with kInvalidArgument, naming `where` and the line, but never a key.
  static Result<ServerKeys> parse(std::string_view text, std::string_view where);

  // Gives each its key.
  void give(std::vector<api::HttpPeer>& peers) const;
  // Those that have a line and are not among the peers.
  std::vector<std::string> others(const std::vector<api::HttpPeer>& peers) const;

 private:
  std::string for_all_;
  std::map<std::string, std::string> by_url_;
};

}  // namespace jige::cli
