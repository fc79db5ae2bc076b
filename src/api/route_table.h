// RouteTable: which route a request is for, whether it may have it, and how answers are counted:
// the same for a server and a router.
//
//   RouteTable table(keys, {{{"GET", "/health"}, on_health}, {{"POST", "/v1/…"}, on_completion}});
//   table.handle(std::move(request), responder);
//   …table.responses()…                            // for /metrics
//
// Order of the checks: key (but for /health), route, method. Paths that are not there share one
// label of counts: a scanner must not fill the metrics.
// Threads: handle() and what it calls on the HTTP server's thread; responses() on any. The table
// must outlive the requests.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "api/api_keys.h"
#include "api/http_message.h"
#include "api/server_metrics.h"

namespace jige::api {

struct RouteName {
  std::string_view method;
  std::string_view path;
  bool prefix = false;  // whatever follows the path is an argument

  bool has_path(const HttpRequest& request) const {
    return prefix ? request.path.starts_with(path) && request.path.size() > path.size()
                  : request.path == path;
  }
  bool matches(const HttpRequest& request) const {
    return has_path(request) && request.method == method;
  }
};

class RouteTable {
 public:
  using Handler = std::function<void(HttpRequest, const std::shared_ptr<Responder>&)>;
  struct Route {
    RouteName name;
    Handler handler;
  };
  RouteTable(ApiKeys keys, std::vector<Route> routes);

  void handle(HttpRequest request, std::shared_ptr<Responder> responder);
  // Counts the answer under this label.
  std::shared_ptr<Responder> counted(std::shared_ptr<Responder> responder, std::string label);
  ResponseCounts responses() const;

 private:
  const ApiKeys keys_;
  const std::vector<Route> routes_;
  mutable std::mutex mutex_;  // guards what follows
  ResponseCounts responses_;
};

// 415 where the body is compressed: it would only look like broken JSON.
bool has_coded_body(const HttpRequest& request);
HttpResponse coded_body_response(const HttpRequest& request);

}  // namespace jige::api
