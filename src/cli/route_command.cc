// jige route: one address in front of several servers.
#include <fmt/format.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "api/api_keys.h"
#include "api/http_client.h"
#include "api/route_service.h"
#include "api/router.h"
#include "base/clock.h"
#include "base/counted.h"
#include "base/file.h"
#include "base/log.h"
#include "cli/build_info.h"
#include "cli/command.h"
#include "cli/commands.h"
#include "cli/flags.h"
#include "cli/http_flags.h"
#include "cli/interrupt.h"
#include "cli/output.h"
#include "cli/server_list.h"

namespace jige::cli {
namespace {

constexpr double kLookAtFileSeconds = 1;
constexpr double kLookUpSeconds = 30;

class RouteCommand final : public Command {
 public:
  void declare(Flags& flags) override {
    flags_ = &flags;
    flags.about(
        "One address in front of several `jige serve`, or other servers with the OpenAI API: each "
        "request goes to the one that has its model and will be done with it soonest, where what "
        "its prompt begins with is likely to be known there already. A server that fails gets "
        "nothing until it is well again; what nobody has seen an answer of is asked elsewhere. "
        "SIGTERM, Ctrl-C or the end of the terminal stop it as they stop `jige serve`.");
    flags.texts("--to URL", to_,
                "a server, such as http://10.0.0.5:8000 or https://llm.example; given for each");
    flags.text("--servers FILE", servers_file_,
               "a file that names them instead, one URL a line; it is read again when it changes: "
               "new ones are used, those that are gone finish what they have");
    flags.text("--server-ca FILE", server_ca_, kServerCaHelp);
    flags.text("--server-key-file FILE", server_key_file_,
               "the keys that the servers ask for, which go to them in place of the client's: a "
               "line KEY for all, lines URL KEY for those with one of their own; it is read again "
               "when it changes");
    flags.section("Routing");
    flags.choice("--policy NAME", policy_, {"prefix", "least-loaded", "round-robin"},
                 "prefix: the least work left, less what is known of the prompt there; "
                 "least-loaded: the least work left; round-robin: one after the other");
    flags.choice("--speeds HOW", speeds_, {"learned", "equal"},
                 "learned: servers that answer faster than others get more; equal: all alike");
    flags.integer("--server-requests N", server_requests_, {.min = 1, .max = 1 << 20},
                  "requests at one server at once at most; further ones wait");
    flags.integer("--queue-requests N", queue_requests_, {.min = 0, .max = 1 << 20},
                  "requests that may wait for room at a server; more get 429");
    flags.number("--probe-seconds S", probe_seconds_, {.min = 0.05, .max = 3600},
                 "between looks at a server that is well");
    flags.number("--answer-seconds S", answer_seconds_, {.min = 0, .max = 1e6},
                 "a server that says nothing to a request for so long, not even how an answer "
                 "begins, or no more of one, is given up for it; 0: never");
    flags.number("--server-idle-seconds S", server_idle_seconds_, {.min = 0, .max = 3600},
                 "how long an unused connection to a server is kept for further requests; 0: each "
                 "has one of its own");
    flags.section("Address and keys");
    http_.declare_address(flags);
    flags.section("Limits");
    http_.declare_connections(flags);
    output_.declare(flags, "print a JSON object when it listens, and at the end");
    flags.example("jige route --to http://10.0.0.5:8000 --to http://10.0.0.6:8000 --port 8080");
    flags.example("jige route --servers servers.txt --host 0.0.0.0 --api-key-file keys.txt");
  }

  Status run() override {
    output_.apply();
    outlive_readers();
    const InterruptScope interrupts;
    raise_descriptor_limit();
    JIGE_DO(check_servers_named());
    JIGE_TRY(files_, read_files());
    JIGE_TRY(std::vector<api::HttpPeer> peers, servers_of(files_));
    JIGE_TRY(api::ApiKeys keys, http_.api_keys());
    JIGE_TRY(const api::HttpServerOptions options, http_.http_options(keys, /*page=*/false));
    http_.warn_if_open(keys, options);
    JIGE_TRY(const auto router, api::Router::start(router_options()));
    api::RouteService service({.version = kVersion, .keys = std::move(keys)}, *router);
    JIGE_TRY(const auto server, api::HttpServer::listen(options, service.handler()));
    service.set_http_stats([&server = *server] { return server.stats(); });
    tell_address(*server, peers.size());
    router->set_servers(std::move(peers));
    const Status routed = route_until_stopped(service, *router, *server);
    router->stop();  // what is left is cut, which the server may still send
    service.stop();
    server->stop(kHttpFlushMs);
    return routed;
  }

 private:
  // What the files of --servers and --server-key-file say; empty where there is none.
  struct ServerFiles {
    std::string servers, keys;
    bool operator==(const ServerFiles&) const = default;
  };

  Status check_servers_named() const {
    if (to_.empty() != servers_file_.empty()) return {};
    return fail(Code::kInvalidArgument,
                "give the servers by --to URL, for each, or by --servers FILE{}",
                to_.empty() ? "" : ", not by both");
  }

  Result<ServerFiles> read_files() const {
    ServerFiles files;
    if (!servers_file_.empty()) {
      JIGE_TRY(files.servers, read_file(servers_file_, kServerListBytesMax));
    }
    if (!server_key_file_.empty()) {
      JIGE_TRY(files.keys, read_file(server_key_file_, kServerListBytesMax));
    }
    return files;
  }

  Result<std::vector<api::HttpPeer>> servers_of(const ServerFiles& files) {
    JIGE_TRY(std::vector<api::HttpPeer> peers,
             servers_file_.empty() ? resolve_servers(list_values(to_, "--to"), "--to", server_ca_)
                                   : resolve_servers(list_lines(files.servers, servers_file_),
                                                     servers_file_, server_ca_));
    if (server_key_file_.empty()) return peers;
    JIGE_TRY(const ServerKeys keys, ServerKeys::parse(files.keys, server_key_file_));
    keys.give(peers);
    std::vector<std::string> unused = keys.others(peers);
    if (unused == unused_keys_) return peers;
    for (const std::string& url : unused) {
      log_warn("{}: has a key for {}, which is none of the servers", server_key_file_, url);
    }
    unused_keys_ = std::move(unused);
    return peers;
  }

  api::RouterOptions router_options() const {
    api::RouterOptions options;
    options.policy.rule = *plan::find_route_rule(policy_);
    options.learn_speeds = speeds_ == "learned";
    options.policy.requests_max = static_cast<int32_t>(server_requests_);
    options.policy.waiting_max = static_cast<int32_t>(queue_requests_);
    options.health.probe_s = probe_seconds_;
    options.answer_s = answer_seconds_;
    options.idle.seconds = server_idle_seconds_;
    options.event_pause_s = kEventPauseMs * 1e-3;
    return options;
  }

  void tell_address(const api::HttpServer& server, size_t servers) const {
    if (output_.json) {
      return print_json(Json{{"event", "listening"},
                             {"address", server.address()},
                             {"port", server.port()},
                             {"servers", servers}});
    }
    print_text(fmt::format("listening on {} for {}\n", server.address(),
                           counted(static_cast<int64_t>(servers), "server")));
  }

  // Routes until a signal comes, then waits for what is under way.
  Status route_until_stopped(api::RouteService& service, api::Router& router,
                             const api::HttpServer& server) {
    StopWatch since_look, since_lookup;
    while (!interrupted()) {
      std::this_thread::sleep_for(kSignalPoll);
      if (since_look.seconds() < kLookAtFileSeconds) continue;
      since_look = StopWatch();
      const bool names_too = since_lookup.seconds() >= kLookUpSeconds;
      if (names_too) since_lookup = StopWatch();
      read_again(router, names_too);
    }
    service.begin_drain();
    log_info("waiting for the requests under way; once more ends the router at once");
    const StopWatch drain;
    while (router.open_count() > 0 && drain.seconds() < http_.drain_seconds) {
      std::this_thread::sleep_for(kSignalPoll);
    }
    const int64_t left = router.open_count();
    if (output_.json) {
      print_json(Json{{"event", "stopped"},
                      {"drained", left == 0},
                      {"http_requests", server.stats().requests_total}});
    }
    if (left == 0) return {};
    return fail(Code::kCancelled, "{} requests were cut off after {} s; --drain-seconds gives more",
                left, http_.drain_seconds);
  }

  // What cannot be read, or found, changes nothing: it may be half written. `names_too`: the hosts
  // of the servers may have other addresses by now.
  void read_again(api::Router& router, bool names_too) {
    Result<ServerFiles> files = read_files();
    if (!files) return tell_once(files.error().message);
    const bool same = *files == files_;
    if (same && !names_too) return tell_once("");
    auto peers = servers_of(*files);
    if (!peers) return tell_once(peers.error().message);
    tell_once("");
    files_ = std::move(*files);
    if (!same) {
      log_info("the servers and their keys were read again: {}",
               counted(std::ssize(*peers), "server"));
    }
    router.set_servers(std::move(*peers));
  }

  void tell_once(const std::string& trouble) {
    if (trouble == trouble_) return;
    trouble_ = trouble;
    if (!trouble.empty()) log_warn("{}; servers and keys stay as they were", trouble);
  }

  const Flags* flags_ = nullptr;
  std::vector<std::string> to_;
  std::string servers_file_, server_ca_, server_key_file_;
  std::string policy_ = "prefix";
  std::string speeds_ = "learned";
  int64_t server_requests_ = 256;
  int64_t queue_requests_ = 1024;
  double probe_seconds_ = 1;
  double answer_seconds_ = api::RouterOptions().answer_s;
  double server_idle_seconds_ = api::IdleOptions().seconds;
  HttpFlags http_;
  OutputFlags output_;
  ServerFiles files_;  // as they were read last
  std::string trouble_;
  std::vector<std::string> unused_keys_;  // by their URLs, as was told
};

}  // namespace

std::unique_ptr<Command> make_route_command() { return std::make_unique<RouteCommand>(); }

}  // namespace jige::cli
