// RouteService: the routes of `jige route`, behind the HTTP server and in front of the router.
//
//   RouteService service({.version = "1.0", .keys = keys}, *router);
//   JIGE_TRY(auto server, HttpServer::listen(options, service.handler()));
//   …
//   service.begin_drain();                        // new requests get 503
//   …until router->open_count() is 0…
//   router->stop();
//   service.stop();
//   server->stop(2000);
//
// Order of the checks: key (but for /health), route, method, draining, and only then is the body
// read, on threads of its own, for the model and the beginning of its prompt. What is answered to
// requests that reach a server is that server's.
// Threads: handler() runs on the HTTP server's thread; begin_drain and stop from one other thread.
// The service must outlive the server's run.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "api/api_keys.h"
#include "api/http_message.h"
#include "api/http_server.h"
#include "api/route_table.h"
#include "api/router.h"
#include "api/server_metrics.h"
#include "api/work_queue.h"

namespace jige::api {

struct RouteServiceOptions {
  std::string version;
  ApiKeys keys;  // of clients
  WorkQueue::Limits work;
};

class RouteService {
 public:
  RouteService(RouteServiceOptions options, Router& router);

  HttpHandler handler();
  void set_http_stats(std::function<HttpServerStats()> stats);
  void begin_drain() { draining_ = true; }
  // Takes no more bodies, reads those it has, and joins the service's threads.
  void stop() { work_.stop(); }

 private:
  using Respond = std::shared_ptr<Responder>;
  std::vector<RouteTable::Route> routes();

  void health(HttpRequest request, const Respond& respond);
  void ready(HttpRequest request, const Respond& respond);
  void version(HttpRequest request, const Respond& respond);
  void metrics(HttpRequest request, const Respond& respond);
  void top(HttpRequest request, const Respond& respond);
  void list_models(HttpRequest request, const Respond& respond);
  void show_model(HttpRequest request, const Respond& respond);
  void forward(HttpRequest request, const Respond& respond);

  // Answers with what `make` says of the router as it is.
  void look(const Respond& respond, std::function<HttpResponse(const RouterView&)> make);

  RouteServiceOptions options_;
  Router& router_;
  RouteTable table_;
  std::atomic<bool> draining_{false};
  std::mutex mutex_;  // guards the one below
  std::function<HttpServerStats()> http_stats_;
  WorkQueue work_;
};

}  // namespace jige::api
