#include "api/route_service.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "api/completion_request.h"
#include "api/counted_responder.h"
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
    : options_(std::move(options)), router_(router), work_(options_.work) {}

HttpHandler RouteService::handler() {
  return [this](HttpRequest request, std::shared_ptr<Responder> responder) {
    handle(std::move(request), std::move(responder));
  };
}

void RouteService::set_http_stats(std::function<HttpServerStats()> stats) {
  const std::lock_guard lock(mutex_);
  http_stats_ = std::move(stats);
}

void RouteService::count_response(const std::string& route, int status) {
  const std::lock_guard lock(mutex_);
  ++responses_[{route, status}];
}

const std::vector<RouteService::Route>& RouteService::routes() {
  static const std::vector<Route> kRoutes = {
      {{"GET", "/health"}, &RouteService::health},
      {{"GET", "/ready"}, &RouteService::ready},
      {{"GET", "/version"}, &RouteService::version},
      {{"GET", "/metrics"}, &RouteService::metrics},
      {{"GET", "/top"}, &RouteService::top},
      {{"GET", "/v1/models"}, &RouteService::list_models},
      {{"GET", "/v1/models/", true}, &RouteService::show_model},
      {{"POST", "/tokenize"}, &RouteService::forward},
      {{"POST", "/detokenize"}, &RouteService::forward},
      {{"POST", "/v1/embeddings"}, &RouteService::forward},
      {{"POST", "/v1/completions"}, &RouteService::forward},
      {{"POST", "/v1/chat/completions"}, &RouteService::forward},
      {{"POST", "/v1/responses"}, &RouteService::forward},
      {{"POST", "/v1/messages"}, &RouteService::forward},
      {{"POST", "/v1/messages/count_tokens"}, &RouteService::forward},
  };
  return kRoutes;
}

const std::vector<RouteName>& RouteService::route_names() {
  static const std::vector<RouteName> kNames(routes().begin(), routes().end());
  return kNames;
}

void RouteService::handle(HttpRequest request, Respond responder) {
  const auto route =
      std::ranges::find_if(routes(), [&](const Route& one) { return one.matches(request); });
  const bool known = route != routes().end();
  const Respond respond = std::make_shared<CountedResponder>(
      std::move(responder), [this, label = known ? std::string(route->path) : "other"](int status) {
        count_response(label, status);
      });
  if (request.path != "/health" && !options_.keys.admits(request)) {
    return respond->respond(missing_key_response(request));
  }
  if (!known) return respond->respond(unknown_route_response(request, route_names()));
  (this->*route->handler)(std::move(request), respond);
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
    return HttpResponse{.content_type = "text/plain; version=0.0.4; charset=utf-8",
                        .body = route_metrics_text(
                            view, http_stats_ ? http_stats_() : HttpServerStats{}, responses_)};
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
  const ErrorForm form = error_form(request.path);
  if (draining_) {
    return respond->respond(error_response({.status = 503,
                                            .message = "the router is shutting down",
                                            .code = "draining",
                                            .retry_after_s = 5},
                                           form));
  }
  if (has_coded_body(request)) return respond->respond(coded_body_response(request));
  const size_t bytes = request.body.size();
  const auto shared = std::make_shared<HttpRequest>(std::move(request));
  std::function<void()> job = [this, respond, form, shared] {
    const ApiResult<Json> body = parse_body(shared->body);
    if (!body) {
      return respond->post(
          [respond, form, error = body.error()] { respond->respond(error_response(error, form)); });
    }
    respond->post([this, respond, shared, facts = route_facts(shared->path, *body)] {
      router_.answer(std::move(*shared), facts, respond);
    });
  };
  if (work_.try_push(job, bytes)) return;
  respond->respond(error_response({.status = 429,
                                   .message = "too many requests wait to be read; try again",
                                   .code = "queue_full",
                                   .retry_after_s = 1},
                                  form));
}

}  // namespace jige::api
