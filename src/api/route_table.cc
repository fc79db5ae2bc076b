#include "api/route_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "api/api_error.h"
#include "api/field_reader.h"
#include "base/ascii.h"

namespace jige::api {

HttpResponse missing_key_response(const HttpRequest& request) {
  return error_response(
      {.status = 401,
       .message = "this server asks for a key: send the header Authorization: Bearer KEY",
       .code = "invalid_api_key"},
      error_form(request.path));
}

HttpResponse unknown_route_response(const HttpRequest& request,
                                    const std::vector<RouteName>& routes) {
  const auto same =
      std::ranges::find_if(routes, [&](const RouteName& route) { return route.has_path(request); });
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
  response.headers = {{"Allow", std::string(same->method)}};
  return response;
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
