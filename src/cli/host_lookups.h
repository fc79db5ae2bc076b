// HostLookups: looks the hosts of servers up on threads of its own, so that nobody waits for what
// finds names, which may hang.
//
//   HostLookups lookups;
//   lookups.want({"http://llm.example:8000"});
//   …
//   for (const FoundHost& found : lookups.take()) …
//
// Invariants: kAtOnce look-ups are under way at most, however long they take, and one of a host;
// behind them wait the hosts that were wanted last, each once. So as long as fewer hang the others
// are found. Threads: one caller. At the end look-ups that hang are left behind, with their
// threads.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "api/http_peer.h"
#include "base/result.h"

namespace jige::cli {

struct FoundHost {
  std::string url;
  Result<api::HostAddress> address;
};

class HostLookups {
 public:
  static constexpr size_t kAtOnce = 8;
  using LookUp = std::function<Result<api::HostAddress>(std::string_view url)>;

  explicit HostLookups(LookUp look_up = api::HttpPeer::look_up);
  HostLookups(const HostLookups&) = delete;
  HostLookups& operator=(const HostLookups&) = delete;
  ~HostLookups();

  // These, in place of those that wait.
  void want(std::vector<std::string> urls);
  // Nothing is under way.
  bool idle() const;
  // What has been found, or not, since this was asked last.
  std::vector<FoundHost> take();

 private:
  struct Shared;
  static void run(Shared& shared);

  std::shared_ptr<Shared> shared_;  // the thread's, too
};

}  // namespace jige::cli
