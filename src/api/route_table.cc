#include "api/route_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "api/api_error.h"
#include "api/counted_responder.h"
#include "api/field_reader.h"
#include "base/ascii.h"

namespace jige::api {
namespace {

// 401.
HttpResponse missing_key_response(const HttpRequest& request) {
  return error_response(
      {.status = 401,
       .message = "this server asks for a key: send the header Authorization: Bearer KEY",
       .code = "invalid_api_key"},
      error_form(request.path));
}

// 405 where one of the routes has its path, else 404.
HttpResponse unknown_route_response(const HttpRequest& request,
                                    const std::vector<RouteTable::Route>& routes) {
  const auto same = std::ranges::find_if(
      routes, [&](const RouteTable::Route& route) { return route.name.has_path(request); });
  const ErrorForm form = error_form(request.path);
  if (same == routes.end()) {
    return error_response(
        {.status = 404,
         .message = fmt::format("there is no route {}", shown_value(Json(request.path))),
         .code = "unknown_route"},
        form);
  }
  HttpResponse response =
      error_response({.status = 405,
                      .message = fmt::format("{} does not take {}", shown_value(Json(request.path)),
                                             shown_value(Json(request.method))),
                      .code = "method_not_allowed"},
                     form);
  response.headers = {{"Allow", std::string(same->name.method)}};
  return response;
}

}  // namespace

RouteTable::RouteTable(ApiKeys keys, std::vector<Route> routes)
    : keys_(std::move(keys)), routes_(std::move(routes)) {}

void RouteTable::handle(HttpRequest request, std::shared_ptr<Responder> responder) {
  const auto route =
      std::ranges::find_if(routes_, [&](const Route& one) { return one.name.matches(request); });
  const bool known = route != routes_.end();
  const std::shared_ptr<Responder> respond =
      counted(std::move(responder), known ? std::string(route->name.path) : "other");
  if (request.path != "/health" && !keys_.admits(request)) {
    return respond->respond(missing_key_response(request));
  }
  if (!known) return respond->respond(unknown_route_response(request, routes_));
  route->handler(std::move(request), respond);
}

std::shared_ptr<Responder> RouteTable::counted(std::shared_ptr<Responder> responder,
                                               std::string label) {
  return std::make_shared<CountedResponder>(std::move(responder),
                                            [this, label = std::move(label)](int status) {
                                              const std::lock_guard lock(mutex_);
                                              ++responses_[{label, status}];
                                            });
}

ResponseCounts RouteTable::responses() const {
  const std::lock_guard lock(mutex_);
  return responses_;
}

bool has_coded_body(const HttpRequest& request) {
  const std::string_view coding = request.header("Content-Encoding");
  return !coding.empty() && lower_ascii(coding) != "identity";
}

HttpResponse coded_body_response(const HttpRequest& request) {
  return error_response(
      {.status = 415,
       .message = fmt::format("bodies with the Content-Encoding {} are not supported; "
                              "send it as it is",
                              shown_value(Json(request.header("Content-Encoding")))),
       .code = "unsupported_encoding"},
      error_form(request.path));
}

}  // namespace jige::api
