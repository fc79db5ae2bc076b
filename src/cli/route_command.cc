// jige route: one address in front of several servers.
#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "api/api_keys.h"
#include "api/route_service.h"
#include "api/router.h"
#include "base/clock.h"
#include "base/counted.h"
#include "base/log.h"
#include "cli/build_info.h"
#include "cli/command.h"
#include "cli/commands.h"
#include "cli/flags.h"
#include "cli/http_flags.h"
#include "cli/interrupt.h"
#include "cli/output.h"
#include "cli/route_servers.h"
#include "cli/server_list.h"

namespace jige::cli {
namespace {

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
    RouteServers servers(servers_options());
    JIGE_TRY(std::vector<api::HttpPeer> peers, servers.first(interrupted));
    JIGE_TRY(api::ApiKeys keys, http_.api_keys());
    JIGE_TRY(const api::HttpServerOptions options, http_.http_options(keys, /*page=*/false));
    http_.warn_if_open(keys, options);
    JIGE_TRY(const auto router, api::Router::start(router_options()));
    api::RouteService service({.version = kVersion, .keys = std::move(keys)}, *router);
    JIGE_TRY(const auto server, api::HttpServer::listen(options, service.handler()));
    service.set_http_stats([&server = *server] { return server.stats(); });
    tell_address(*server, peers.size());
    router->set_servers(std::move(peers));
    const Status routed = route_until_stopped(servers, service, *router, *server);
    router->stop();  // what is left is cut, which the server may still send
    service.stop();
    server->stop(kHttpFlushMs);
    return routed;
  }

 private:
  Status check_servers_named() const {
    if (to_.empty() != servers_file_.empty()) return {};
    return fail(Code::kInvalidArgument,
                "give the servers by --to URL, for each, or by --servers FILE{}",
                to_.empty() ? "" : ", not by both");
  }

  RouteServersOptions servers_options() const {
    return {
        .urls = to_, .file = servers_file_, .ca_file = server_ca_, .key_file = server_key_file_};
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
  Status route_until_stopped(RouteServers& servers, api::RouteService& service, api::Router& router,
                             const api::HttpServer& server) const {
    const StopWatch watch;
    while (!interrupted()) {
      std::this_thread::sleep_for(kSignalPoll);
      if (auto peers = servers.changed(watch.seconds())) router.set_servers(std::move(*peers));
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
};

}  // namespace

std::unique_ptr<Command> make_route_command() { return std::make_unique<RouteCommand>(); }

}  // namespace jige::cli
