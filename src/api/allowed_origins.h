// AllowedOrigins: whose pages may use the server from within a browser (CORS,
// fetch.spec.whatwg.org).
//
// A browser says with `Origin: https://chat.example` whose page sends a request. A page that is not
// allowed must be refused, not only kept from reading the answer: a browser sends a plain POST to
// any address, and asks afterwards. Programs send no Origin.
// The server's own page (api/page.h) is admitted by what its requests have in common with no other:
// their Origin names the host that their Host field names. Any page can bring that about by leading
// its own name to the server (DNS rebinding), so it counts only under names that nobody else can
// give to this machine, or where such a page gains nothing, having neither key nor certificate.
// What an answer says of origins was written by who started the server, never by the request.
// Threads: immutable after parsing.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "api/http_message.h"
#include "base/result.h"

namespace jige::api {

// The page that the server itself shows.
struct OwnPage {
  bool any_name = false;           // keys or TLS keep out pages that lead their name here
  std::vector<std::string> names;  // of this machine, in small letters, without ports
};

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
  // Admits the server's own page, too: under addresses, localhost and the names, or any name.
  void admit_own(OwnPage page) { own_ = std::move(page); }
  // Whether a request with these fields comes from the server's own page, and that is admitted.
  bool is_own(std::string_view origin, std::string_view host) const;
  // REQUIRES: a request with an Origin field, of this value.
  bool admits(std::string_view origin) const;
  // What every answer says to a request with this Origin, empty where it has none: to whom it may
  // be shown, and that it depends on that.
  std::vector<HttpHeader> fields(std::string_view origin) const;

 private:
  bool all_ = false;
  bool local_ = false;
  std::vector<std::string> origins_;  // as browsers write them
  std::optional<OwnPage> own_;
};

// Whether a request asks, before it comes, if it may: OPTIONS with an Origin and the method to be
// allowed.
bool is_preflight(const HttpRequest& request);
// The answer to an origin that is admitted: methods of all routes, and the fields that it asks for.
HttpResponse preflight_response(const HttpRequest& request);

}  // namespace jige::api
