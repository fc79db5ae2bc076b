// Which route a request is for, and what is said where it is for none.
//
// Threads: pure functions.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "api/http_message.h"

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

// What a request without the right key gets: 401.
HttpResponse missing_key_response(const HttpRequest& request);
// What one gets that is for none of the routes: 405 where one has its path, else 404.
HttpResponse unknown_route_response(const HttpRequest& request,
                                    const std::vector<RouteName>& routes);
// 415 where the body is compressed: it would only look like broken JSON.
bool has_coded_body(const HttpRequest& request);
HttpResponse coded_body_response(const HttpRequest& request);

}  // namespace jige::api
