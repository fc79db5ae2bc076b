#include "cli/route_servers.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

#include "base/clock.h"
#include "base/counted.h"
#include "base/file.h"
#include "base/log.h"

namespace jige::cli {
namespace {

constexpr std::chrono::milliseconds kLookupPoll(5);

}  // namespace

RouteServers::RouteServers(RouteServersOptions options)
    : options_(std::move(options)), lookups_(options_.look_up) {}

Result<RouteServers::Files> RouteServers::read_files() const {
  Files files;
  if (!options_.file.empty()) {
    JIGE_TRY(files.servers, read_file(options_.file, kServerListBytesMax));
  }
  if (!options_.key_file.empty()) {
    JIGE_TRY(files.keys, read_file(options_.key_file, kServerListBytesMax));
  }
  return files;
}

Status RouteServers::read_list(const Files& files, double now_s) {
  Wanted wanted{.files = files, .since_s = now_s};
  JIGE_TRY(wanted.servers,
           options_.file.empty()
               ? read_servers(list_values(options_.urls, "--to"), "--to", options_.ca_file)
               : read_servers(list_lines(files.servers, options_.file), options_.file,
                              options_.ca_file));
  if (!options_.key_file.empty()) {
    JIGE_TRY(wanted.keys, ServerKeys::parse(files.keys, options_.key_file));
  }
  wanted_ = std::move(wanted);
  not_found_.clear();
  looking_up_ = false;
  lookups_.want(unfound());
  return {};
}

std::vector<std::string> RouteServers::unfound() const {
  std::vector<std::string> urls;
  for (const ListedServer& server : wanted_.servers) {
    const std::string& url = server.peer.url();
    const bool named = server.peer.address.bytes == 0;
    if (named && !known_.contains(url) && !not_found_.contains(url)) urls.push_back(url);
  }
  return urls;
}

Result<std::vector<api::HttpPeer>> RouteServers::first(const std::function<bool()>& cancelled) {
  const StopWatch watch;
  JIGE_TRY(const Files files, read_files());
  JIGE_DO(read_list(files, 0));
  while (!cancelled()) {
    take_found();
    JIGE_TRY(std::optional<std::vector<api::HttpPeer>> peers, peers_to_use(watch.seconds()));
    if (peers) return std::move(*peers);
    std::this_thread::sleep_for(kLookupPoll);
  }
  return fail(Code::kCancelled, "stopped while the hosts of the servers were being looked up");
}

std::optional<std::vector<api::HttpPeer>> RouteServers::changed(double now_s) {
  const bool look = now_s - looked_s_ >= options_.look_at_files_s;
  if (look) {
    looked_s_ = now_s;
    look_at_files(now_s);
  }
  const bool idle = lookups_.idle();  // before: else what is found in between is no news
  take_found();
  // Those that hang the others do not wait for.
  if (idle || now_s - looked_up_s_ >= options_.patience_s) look_up_again(now_s, look);
  const bool was_used = wanted_.used;
  auto peers = peers_to_use(now_s);
  if (!peers) {
    tell_once(peers.error().message + "; servers and keys stay as they were");
    return std::nullopt;
  }
  if (*peers && !was_used) {
    log_info("the servers and their keys were read again: {}",
             counted(std::ssize(**peers), "server"));
  }
  return std::move(*peers);
}

void RouteServers::look_at_files(double now_s) {
  const Result<Files> files = read_files();
  Status read = files ? Status() : Status(tl::unexpected(files.error()));
  if (files && *files == wanted_.files) {
    if (wanted_.used) tell_once("");
    return;
  }
  if (files) read = read_list(*files, now_s);
  if (!read) tell_once(read.error().message + "; servers and keys stay as they were");
}

// Of hosts with names all, every look_up_s; those that keep a list from being used as often as
// files are looked at.
void RouteServers::look_up_again(double now_s, bool looked) {
  if (std::exchange(looking_up_, false)) news_ = true;  // also for servers that are down by now
  const bool all = now_s - looked_up_s_ >= options_.look_up_s;
  std::vector<std::string> urls;
  for (const ListedServer& server : wanted_.servers) {
    if (server.peer.address.bytes > 0) continue;
    const bool blocks = !wanted_.used && not_found_.contains(server.peer.url());
    if (all || (blocks && looked)) urls.push_back(server.peer.url());
  }
  if (urls.empty()) return;  // and those that wait go on waiting
  looking_up_ = all;
  if (all) {
    looked_up_s_ = now_s;
  } else {
    for (const std::string& url : unfound()) urls.push_back(url);
  }
  lookups_.want(std::move(urls));
}

void RouteServers::take_found() {
  for (FoundHost& found : lookups_.take()) {
    const bool was_known = known_.contains(found.url);
    if (found.address) {
      not_found_.erase(found.url);
      known_[found.url] = *found.address;
      news_ = news_ || !was_known;
      continue;
    }
    Error& error = found.address.error();
    const auto before = not_found_.find(found.url);
    const bool told = before != not_found_.end() && before->second.message == error.message;
    if (wanted_.used && !told) {
      log_warn("{}; {}", error.message,
               was_known ? "it is asked where it was" : "it gets nothing until then");
    }
    not_found_.insert_or_assign(found.url, std::move(error));
  }
}

Result<std::optional<std::vector<api::HttpPeer>>> RouteServers::peers_to_use(double now_s) {
  std::vector<api::HttpPeer> peers;
  const ListedServer* hangs = nullptr;
  for (const ListedServer& server : wanted_.servers) {
    api::HttpPeer peer = server.peer;
    if (const auto known = known_.find(peer.url()); known != known_.end()) {
      peer.address = known->second;
    }
    if (peer.address.bytes > 0) {
      peers.push_back(std::move(peer));
    } else if (const auto missing = not_found_.find(peer.url()); missing != not_found_.end()) {
      if (!wanted_.used) return with_context(Error(missing->second), "{}", server.place);
    } else {
      hangs = &server;
    }
  }
  if (wanted_.used && !news_) return std::nullopt;
  if (hangs && !wanted_.used && now_s - wanted_.since_s < options_.patience_s) return std::nullopt;
  if (hangs) {
    tell_once(fmt::format("{}: {}: the host is still being looked up; it gets nothing until then",
                          hangs->place, hangs->peer.url()));
  }
  if (peers.empty()) return std::nullopt;
  wanted_.used = true;
  news_ = false;
  wanted_.keys.give(peers);
  tell_unused_keys();
  forget_others();
  return peers;
}

void RouteServers::forget_others() {
  std::erase_if(known_, [&](const auto& entry) {
    return std::ranges::none_of(wanted_.servers, [&](const ListedServer& server) {
      return server.peer.url() == entry.first;
    });
  });
}

void RouteServers::tell_unused_keys() {
  std::vector<api::HttpPeer> peers;
  for (const ListedServer& server : wanted_.servers) peers.push_back(server.peer);
  std::vector<std::string> unused = wanted_.keys.others(peers);
  if (unused == unused_keys_) return;
  for (const std::string& url : unused) {
    log_warn("{}: has a key for {}, which is none of the servers", options_.key_file, url);
  }
  unused_keys_ = std::move(unused);
}

void RouteServers::tell_once(const std::string& trouble) {
  if (trouble == told_) return;
  told_ = trouble;
  if (!trouble.empty()) log_warn("{}", trouble);
}

}  // namespace jige::cli
