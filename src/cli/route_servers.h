// RouteServers: which servers a router has, by flags or files that are read again, and where their
// hosts are by now.
//
//   RouteServers servers({.file = "servers.txt"});
//   JIGE_TRY(std::vector<api::HttpPeer> peers, servers.first(interrupted));
//   router->set_servers(std::move(peers));
//   …every moment…  if (auto peers = servers.changed(watch.seconds())) router->set_servers(…);
//
// The files are read every look_at_files_s. A list that cannot be read, or names a host that is not
// there, changes nothing: it may be half written. Addresses need no look-up, and a host that is
// known stays where it was while nothing else is found. What finds names may hang: behind
// patience_s a list is used without the hosts that are still being looked up; they come when they
// are found. All hosts with names are looked up again every look_up_s, and told again, too.
//
// Invariants: nothing but first() waits for a look-up. What is wrong is told once, not every time.
// Threads: one.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "api/http_peer.h"
#include "base/result.h"
#include "cli/host_lookups.h"
#include "cli/server_list.h"

namespace jige::cli {

struct RouteServersOptions {
  std::vector<std::string> urls;  // --to; or else
  std::string file;               // --servers
  std::string ca_file, key_file;  // --server-ca, --server-key-file; empty: none
  double look_at_files_s = 1;
  double look_up_s = 30;
  double patience_s = 5;
  HostLookups::LookUp look_up = api::HttpPeer::look_up;  // another one for tests
};

class RouteServers {
 public:
  explicit RouteServers(RouteServersOptions options);

  // Those of the beginning, with their keys. Fails on what is wrong with the files or flags, as
  // read_servers and ServerKeys do, on a host that is not found, and with kCancelled.
  Result<std::vector<api::HttpPeer>> first(const std::function<bool()>& cancelled);
  // What the router is to have from now on, where there is something new; at most every moment.
  std::optional<std::vector<api::HttpPeer>> changed(double now_s);

 private:
  // What the files say; empty where there is none.
  struct Files {
    std::string servers, keys;
    bool operator==(const Files&) const = default;
  };
  // What they mean.
  struct Wanted {
    Files files;
    std::vector<ListedServer> servers;
    ServerKeys keys;
    double since_s = 0;
    bool used = false;
  };

  Result<Files> read_files() const;
  Status read_list(const Files& files, double now_s);
  // Those with names that nothing has come of yet.
  std::vector<std::string> unfound() const;
  void look_at_files(double now_s);
  void look_up_again(double now_s, bool looked);
  void take_found();
  // Nothing where it is too early; fails on a host that is not found.
  Result<std::optional<std::vector<api::HttpPeer>>> peers_to_use(double now_s);
  void forget_others();
  void tell_unused_keys();
  void tell_once(const std::string& trouble);

  const RouteServersOptions options_;
  HostLookups lookups_;
  Wanted wanted_;
  std::map<std::string, api::HostAddress> known_;  // of hosts with names, by URL
  std::map<std::string, Error> not_found_;         // of these, the last time
  bool news_ = false;                              // of addresses
  bool looking_up_ = false;                        // all of them again
  double looked_s_ = 0, looked_up_s_ = 0;
  std::string told_;
  std::vector<std::string> unused_keys_;  // by their URLs, as was told
};

}  // namespace jige::cli
