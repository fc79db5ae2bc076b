// HostLookups: looks the hosts of servers up on a thread of its own, one after the other, so that
// nobody waits for what finds names, which may hang.
//
//   HostLookups lookups;
//   lookups.want({"http://llm.example:8000"});
//   …
//   for (const FoundHost& found : lookups.take()) …
//
// Invariants: one look-up is under way at most, however long it takes; behind it wait the hosts
// that were wanted last, each once. Threads: one caller. At the end a look-up that hangs is left
// behind, with its thread.
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
