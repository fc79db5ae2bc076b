// GET /metrics, /top and /v1/models of a router: what it tells of its servers and itself.
//
// Threads: pure functions, to be called while the router is looked at.
#pragma once

#include <string>

#include "api/http_server.h"
#include "api/router.h"
#include "api/server_metrics.h"
#include "base/json.h"

namespace jige::api {

std::string route_metrics_text(const RouterView& view, const HttpServerStats& http,
                               const ResponseCounts& responses);

// A snapshot for a live view: totals, and a row a server.
Json route_top_json(const RouterView& view);

// The models of all servers, each once, as the first of them that has it tells of it; those of
// servers that are down too, as they were last.
Json routed_models(const RouterView& view);

}  // namespace jige::api
