// AllowedOrigins: whose pages may use the server from within a browser (CORS,
// fetch.spec.whatwg.org).
//
// A browser says with `Origin: https://chat.example` whose page sends a request. A page that is not
// allowed must be refused, not only kept from reading the answer: a browser sends a plain POST to
// any address, and asks afterwards. Programs send no Origin.
// What an answer says of origins was written by who started the server, never by the request.
// Threads: immutable after parsing.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "api/http_message.h"
#include "base/result.h"

namespace jige::api {

class AllowedOrigins {
 public:
  // No page may.
  AllowedOrigins() = default;

  // Origins separated by commas: SCHEME://HOST or SCHEME://HOST:PORT, "localhost" for pages that
  // this machine serves to itself (localhost, 127.0.0.1 and [::1], http and https, any port), or
  // "*" for all. Nothing for an empty text. Fails with kInvalidArgument on what no browser would
  // send; `where` names it.
  static Result<AllowedOrigins> parse(std::string_view text, std::string_view where);

  bool all() const { return all_; }
  // REQUIRES: a request with an Origin field, of this value.
  bool admits(std::string_view origin) const;
  // What every answer says to a request with this Origin, empty where it has none: to whom it may
  // be shown, and that it depends on that.
  std::vector<HttpHeader> fields(std::string_view origin) const;

 private:
  bool all_ = false;
  bool local_ = false;
  std::vector<std::string> origins_;  // as browsers write them
};

// Whether a request asks, before it comes, if it may: OPTIONS with an Origin and the method to be
// allowed.
bool is_preflight(const HttpRequest& request);
// The answer to an origin that is admitted: methods of all routes, and the fields that it asks for.
HttpResponse preflight_response(const HttpRequest& request);

}  // namespace jige::api
