#include "api/route_service.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "api/body_job.h"
#include "api/field_reader.h"
#include "api/route_metrics.h"

namespace jige::api {
namespace {

HttpResponse state_of_route(const RouterView& view, bool draining) {
  const auto up = std::ranges::count_if(view.servers, [](const RouteServerView& one) {
    return one.status.state != plan::ServerState::kDown && !one.status.leaving;
  });
  const char* state = draining ? "draining" : up > 0 ? "ok" : "no server";
  HttpResponse response =
      json_response({{"status", state}, {"servers", view.servers.size()}, {"servers_up", up}},
                    draining || up == 0 ? 503 : 200);
  if (response.status == 503) response.headers.push_back({"Retry-After", "2"});
  return response;
}

}  // namespace

RouteService::RouteService(RouteServiceOptions options, Router& router)
    : options_(std::move(options)),
      router_(router),
      table_(options_.keys, routes()),
      work_(options_.work) {}

HttpHandler RouteService::handler() {
  return [this](HttpRequest request, std::shared_ptr<Responder> responder) {
    table_.handle(std::move(request), std::move(responder));
  };
}

void RouteService::set_http_stats(std::function<HttpServerStats()> stats) {
  const std::lock_guard lock(mutex_);
  http_stats_ = std::move(stats);
}

std::vector<RouteTable::Route> RouteService::routes() {
  const auto by = [this](void (RouteService::*method)(HttpRequest, const Respond&)) {
    return [this, method](HttpRequest request, const Respond& respond) {
      (this->*method)(std::move(request), respond);
    };
  };
  return {
      {{"GET", "/health"}, by(&RouteService::health)},
      {{"GET", "/ready"}, by(&RouteService::ready)},
      {{"GET", "/version"}, by(&RouteService::version)},
      {{"GET", "/metrics"}, by(&RouteService::metrics)},
      {{"GET", "/top"}, by(&RouteService::top)},
      {{"GET", "/v1/models"}, by(&RouteService::list_models)},
      {{"GET", "/v1/models/", true}, by(&RouteService::show_model)},
      {{"POST", "/tokenize"}, by(&RouteService::forward)},
      {{"POST", "/detokenize"}, by(&RouteService::forward)},
      {{"POST", "/v1/embeddings"}, by(&RouteService::forward)},
      {{"POST", "/v1/rerank"}, by(&RouteService::forward)},
      {{"POST", "/v2/rerank"}, by(&RouteService::forward)},
      {{"POST", "/v1/completions"}, by(&RouteService::forward)},
      {{"POST", "/v1/chat/completions"}, by(&RouteService::forward)},
      {{"POST", "/v1/responses"}, by(&RouteService::forward)},
      {{"POST", "/v1/messages"}, by(&RouteService::forward)},
      {{"POST", "/v1/messages/count_tokens"}, by(&RouteService::forward)},
  };
}

void RouteService::look(const Respond& respond,
                        std::function<HttpResponse(const RouterView&)> make) {
  router_.look([respond, make = std::move(make)](const RouterView& view) {
    respond->post([respond, response = make(view)] { respond->respond(response); });
  });
}

void RouteService::health(HttpRequest, const Respond& respond) {
  look(respond, [](const RouterView& view) { return state_of_route(view, false); });
}

void RouteService::ready(HttpRequest, const Respond& respond) {
  look(respond, [draining = draining_.load()](const RouterView& view) {
    return state_of_route(view, draining);
  });
}

void RouteService::version(HttpRequest, const Respond& respond) {
  respond->respond(json_response({{"version", options_.version}}));
}

void RouteService::metrics(HttpRequest, const Respond& respond) {
  look(respond, [this](const RouterView& view) {
    const std::lock_guard lock(mutex_);
    return HttpResponse{
        .content_type = "text/plain; version=0.0.4; charset=utf-8",
        .body = route_metrics_text(view, http_stats_ ? http_stats_() : HttpServerStats{},
                                   table_.responses())};
  });
}

void RouteService::top(HttpRequest, const Respond& respond) {
  look(respond, [](const RouterView& view) { return json_response(route_top_json(view)); });
}

void RouteService::list_models(HttpRequest, const Respond& respond) {
  look(respond, [](const RouterView& view) {
    return json_response({{"object", "list"}, {"data", routed_models(view)}});
  });
}

void RouteService::show_model(HttpRequest request, const Respond& respond) {
  look(respond, [name = request.path.substr(std::string_view("/v1/models/").size())](
                    const RouterView& view) {
    for (const Json& model : routed_models(view)) {
      if (model["id"] == name) return json_response(model);
    }
    return error_response(
        {.status = 404,
         .message = fmt::format("the model {} is not served here", shown_value(Json(name))),
         .param = "model",
         .code = "model_not_found"});
  });
}

void RouteService::forward(HttpRequest request, const Respond& respond) {
  if (draining_)
    return respond->respond(error_response(draining_error(), error_form(request.path)));
  const auto on_body = [this](const std::shared_ptr<HttpRequest>& asked, const Json& body,
                              const Respond& to) {
    to->post([this, to, facts = route_facts(asked->path, body), asked] {
      router_.answer(std::move(*asked), facts, to);
    });
  };
  read_body(work_, std::move(request), respond, {.on_body = on_body});
}

}  // namespace jige::api
