// Router: one address in front of several servers: the loop that gives requests to them and answers
// to clients, as plan::RoutePolicy decides.
//
//   JIGE_TRY(auto router, Router::start({}));
//   router->set_servers(peers);
//   router->answer(std::move(request), facts, responder);       // on the HTTP server's thread
//   router->look([responder](const RouterView& view) { … });    // /metrics, /v1/models
//   router->stop();
//
// A request goes to another server only while its client has seen nothing of an answer, and only
// where a server has refused it (429, 503), could not be reached, or was lost: the latter once, so
// that no request takes one server after the other with it. A server whose connection was left by
// another request, and has ended without a byte, is asked once more on one of its own. Where all
// refuse, the client gets the refusal that asks for the shortest wait; where all rest that could
// take it, and it has waited rest_wait_s, such a refusal or 503, with how long they want to be left
// alone. Behind the first byte a lost server is told as an error in the stream. A client that waits
// long for a stream gets its head and comments; they are no part of an answer, but an error behind
// them is one in the stream. A client that goes takes its request along: the call to the server
// ends. A server whose probes have no answer any more has lost what it has; a stream of it gets
// stalled_s to go on. Where it says nothing to a request for answer_s, though its probes are well,
// it has lost that request alone; plan/server_health.h says what becomes of a server that does so
// several times, or that clients leave without a byte.
//
// Invariants: the bodies of requests that may be asked again are bounded (bodies_bytes_max).
// Threads: one of its own, which does all the work: events of sockets, what the others hand in, a
// look around every few milliseconds. answer() on the HTTP server's thread, the others on any.
// The router must outlive the HTTP server's run.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "api/http_client.h"
#include "api/http_message.h"
#include "api/route_facts.h"
#include "api/route_server.h"
#include "base/result.h"
#include "plan/route_policy.h"
#include "plan/server_health.h"
#include "plan/server_speed.h"

namespace jige::api {

struct RouterOptions {
  plan::RouteOptions policy;
  plan::HealthOptions health;
  IdleOptions idle;           // connections to each server that are kept for other requests
  bool learn_speeds = true;   // else servers count as equally fast
  double connect_s = 3;       // to reach a server
  double probe_answer_s = 3;  // for it to answer a probe
  double rest_wait_s = 5;     // of a request, for servers that rest
  double stalled_s = 30;      // without a byte, of a stream whose server answers no probe
  double answer_s = 1800;     // without a byte, of any request; 0: for ever
  double event_pause_s = 10;  // till a client that waits for a stream to begin hears a comment
  size_t bodies_bytes_max = size_t{256} << 20;
  std::function<void()> before_turn;  // for tests: delays of the router's thread
};

struct RouterTotals {
  int64_t answered = 0;   // to the end
  int64_t cancelled = 0;  // by clients that went
  int64_t cut = 0;        // behind their first byte
  int64_t no_model = 0, no_server = 0, queue_full = 0, refused = 0, lost = 0;
};

struct RouteServerView {
  std::string address;
  plan::RouteServerStatus status;
  plan::ServerRates rates;
  const RouteServer* server = nullptr;
};

// As it is while a look lasts.
struct RouterView {
  std::vector<RouteServerView> servers;
  RouterTotals totals;
  int64_t waiting = 0;
  int64_t in_flight = 0;  // at servers
  double expected_answer_tokens = 0;
  std::string rule;
};

class Router {
 public:
  // Fails with kExhausted where there are no file descriptors.
  static Result<std::unique_ptr<Router>> start(RouterOptions options);
  virtual ~Router() = default;

  // From now on these: new ones are probed at once; those that are not among them finish what they
  // have and get nothing more; of those that stay the key may be another one, and the address
  // of those that are down.
  virtual void set_servers(std::vector<HttpPeer> peers) = 0;
  virtual void answer(HttpRequest request, RouteFacts facts,
                      std::shared_ptr<Responder> responder) = 0;
  // Runs on the router's thread, soon; not at all once it has stopped.
  virtual void look(std::function<void(const RouterView&)> looker) = 0;
  // Requests that are at servers or wait.
  virtual int64_t open_count() const = 0;
  // Gives up what is under way and joins the thread. Called once at most; the destructor does it
  // otherwise.
  virtual void stop() = 0;
};

}  // namespace jige::api
