// RouteServer: one server behind a router: where it is, how it is, which models it has, what was
// counted of it. Internal to the router, whose thread it belongs to.
//
// A probe is GET /health, and behind it GET /v1/models: a server counts as well when both have
// status 200 and there is a model, which a server of Jige has none of while it loads. Behind them
// it is asked how much it has to do, by GET /metrics (api/load_report.h); what it says to that is
// no matter of its health. It has probe_answer_s for each.
//
// Probes have a connection of their own, which is kept for the next one where that comes before
// IdleOptions::seconds. Its end says that the server may be gone: the next probe comes sooner then.
// One that is down is probed on a new connection each time, since it may be one that takes no more
// of them; one that is well on a new one every kProbeWireSeconds, for the same reason.
// Threads: the router's own.
#pragma once

#include <poll.h>

#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "api/http_client.h"
#include "api/idle_wires.h"
#include "base/json.h"
#include "plan/route_policy.h"
#include "plan/server_health.h"
#include "plan/server_load.h"
#include "serve/histogram.h"

namespace jige::api {

struct RouteServerCounts {
  int64_t requests = 0;        // sent to it, retries among them
  int64_t retries = 0;         // that another server had refused or lost
  int64_t refused = 0;         // answered by 429 or 503
  int64_t connect_failed = 0;  // never reached it
  int64_t broke = 0;           // ended before the answer did, or were no HTTP
  int64_t silent = 0;          // it said nothing for answer_s
  int64_t abandoned = 0;       // it said nothing for abandoned_s, and the client went
  int64_t well = 0;            // whole answers with a status below 400
  int64_t client_errors = 0;   // with one below 500
  int64_t server_errors = 0;   // and from there on
  int64_t cut = 0;             // of these, behind the first bytes for the client
  int64_t cancelled = 0;       // the client went
  int64_t prompt_tokens = 0;   // by four bytes each, of prompts sent to it
  int64_t known_tokens = 0;    // of these, that it was believed to know
  int64_t opened = 0;          // connections for requests
  int64_t opened_probes = 0;   // connections for probes
  int64_t reused = 0;          // requests on a connection that another had left
  int64_t stale = 0;           // of these, whose connection had ended: asked afresh
};

class RouteServer {
 public:
  static constexpr const char* kNotYet = "it has not answered yet";
  static constexpr double kProbeWireSeconds = 30;

  RouteServer(HttpPeer peer, plan::RouteServerId id, const plan::HealthOptions& health,
              const IdleOptions& idle_options)
      : idle(idle_options),
        peer_(std::move(peer)),
        id_(id),
        health_(health),
        keeps_probe_wire_(health.probe_s < idle_options.seconds) {}

  const HttpPeer& peer() const { return peer_; }
  // Of what is asked from now on.
  void set_api_key(const std::string& api_key) { peer_.api_key = api_key; }
  // Likewise: where its host is by now.
  void set_address(const HostAddress& address);
  plan::RouteServerId id() const { return id_; }
  std::string address() const { return peer_.url(); }
  plan::ServerHealth& health() { return health_; }
  const plan::ServerHealth& health() const { return health_; }

  // Entries of /v1/models as the server gave them last.
  const Json& models() const { return models_; }
  std::vector<std::string> model_names() const;
  // Why it is down; empty where it is not.
  const std::string& trouble() const { return trouble_; }
  void set_trouble(std::string trouble) { trouble_ = std::move(trouble); }

  bool probing() const { return probe_.has_value(); }
  // What is to be watched, and for what: the probe that is under way, or the connection that is
  // kept for the next one. -1: nothing.
  int probe_fd() const;
  short probe_events() const { return probe_ ? probe_->wanted_events() : POLLIN; }
  // Sends a probe; so many answers are made there for this router. False where not even that was
  // possible.
  bool begin_probe(double now_s, double answer_s, int64_t own);
  // Bytes may be there, or the time be up. True where the probe went on to another call or ended.
  bool move_probe(double now_s);
  // The next probe opens a connection.
  void drop_probe_wire() { probe_wire_.reset(); }

  RouteServerCounts counts;
  IdleWires idle;             // connections for requests
  plan::ServerLoad load{{}};  // of others
  serve::Histogram first_byte_seconds{serve::latency_bounds()};
  serve::Histogram answer_seconds{serve::latency_bounds()};  // of whole ones
  bool leaving = false;
  // What was logged of it last.
  bool told_up = false;
  std::string told_trouble = kNotYet;

 private:
  enum class Step { kHealth, kModels, kLoad };

  bool start_step(Step step, double now_s);
  Status call_step(std::optional<HttpWire> wire, double now_s);
  // Ends the call of a step, whose connection is left for the next one where it can be.
  void end_call();
  void end_probe(double now_s, std::string trouble);
  void end_load(double now_s, bool answered);
  // What is wrong with the answer; empty: nothing.
  std::string look_at_answer();

  HttpPeer peer_;
  plan::RouteServerId id_;
  plan::ServerHealth health_;
  Json models_;
  std::string trouble_ = kNotYet;

  const bool keeps_probe_wire_;
  std::optional<HttpCall> probe_;
  std::optional<HttpWire> probe_wire_;  // while no call has it
  double probe_wire_opened_s_ = 0;
  Step step_ = Step::kHealth;
  double answer_s_ = 0;
  double probe_until_s_ = 0;
};

}  // namespace jige::api
