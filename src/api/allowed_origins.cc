#include "api/allowed_origins.h"

#include <algorithm>

#include "base/ascii.h"
#include "base/split.h"

namespace jige::api {
namespace {

constexpr size_t kOriginBytesMax = 300;  // the longest name of a host has 253
constexpr std::string_view kPreflightSeconds = "600";

bool is_port(std::string_view text) {
  return !text.empty() && text.size() <= 5 &&
         std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
}

bool consists_of(std::string_view text, std::string_view more) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [&](char c) {
    return is_ascii_alphanumeric(c) || more.find(c) != std::string_view::npos;
  });
}

// Whether the page comes from the machine that the browser runs on.
bool is_local(std::string_view origin) {
  for (const std::string_view scheme : {"http://", "https://"}) {
    if (!origin.starts_with(scheme)) continue;
    const std::string_view place = origin.substr(scheme.size());
    for (const std::string_view host : {"localhost", "127.0.0.1", "[::1]"}) {
      if (!place.starts_with(host)) continue;
      const std::string_view rest = place.substr(host.size());
      if (rest.empty() || (rest[0] == ':' && is_port(rest.substr(1)))) return true;
    }
  }
  return false;
}

// The host without its port.
std::string_view name_of_host(std::string_view host) {
  const size_t colon = host.rfind(':');
  if (colon == std::string_view::npos || host.ends_with(']')) return host;
  return host.substr(0, colon);
}

// An address, which no name server can lead elsewhere: in the form that browsers write it in.
bool is_address(std::string_view name) {
  if (name.starts_with('[') && name.ends_with(']')) return true;
  return !name.empty() && std::all_of(name.begin(), name.end(),
                                      [](char c) { return c == '.' || (c >= '0' && c <= '9'); });
}

tl::unexpected<Error> no_origin(std::string_view where, std::string_view text) {
  return fail(Code::kInvalidArgument,
              "{}: \"{}\" is no origin; write SCHEME://HOST or SCHEME://HOST:PORT without a path, "
              "such as https://chat.example, several with commas, localhost for pages of this "
              "machine, or * for all",
              where, text);
}

// One origin as a browser writes it: small letters, no port that the scheme has anyway.
Result<std::string> normal_origin(std::string_view text, std::string_view where) {
  const std::string origin = lower_ascii(text);
  const size_t mark = origin.find("://");
  if (origin.size() > kOriginBytesMax || mark == std::string::npos) return no_origin(where, text);
  const std::string scheme = origin.substr(0, mark);
  std::string host = origin.substr(mark + 3), port;
  if (const size_t colon = host.rfind(':'); colon != std::string::npos && !host.ends_with(']')) {
    port = host.substr(colon + 1);
    host.resize(colon);
    if (!is_port(port)) return no_origin(where, text);
  }
  const bool is_ipv6 = host.starts_with('[') && host.ends_with(']') && host.size() > 2 &&
                       consists_of(host.substr(1, host.size() - 2), ":.");
  if (!consists_of(scheme, "+-.") || !(is_ipv6 || consists_of(host, "-._"))) {
    return no_origin(where, text);
  }
  const bool usual = (scheme == "http" && port == "80") || (scheme == "https" && port == "443");
  return scheme + "://" + host + (port.empty() || usual ? "" : ":" + port);
}

std::string_view without_blanks(std::string_view text) {
  const size_t begin = text.find_first_not_of(" \t");
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(" \t") - begin + 1);
}

// Names of fields between commas, and nothing else.
bool is_name_list(std::string_view text) { return consists_of(text, "!#$%&'*+-.^_`|~, "); }

}  // namespace

Result<AllowedOrigins> AllowedOrigins::parse(std::string_view text, std::string_view where) {
  AllowedOrigins allowed;
  if (text.empty()) return allowed;
  for (const std::string_view item : split_at(text, ',')) {
    const std::string_view one = without_blanks(item);
    if (one == "*") {
      allowed.all_ = true;
    } else if (one == "localhost") {
      allowed.local_ = true;
    } else {
      JIGE_TRY(allowed.origins_.emplace_back(), normal_origin(one, where));
    }
  }
  return allowed;
}

bool AllowedOrigins::admits(std::string_view origin) const {
  if (all_ || (local_ && is_local(origin))) return true;
  return std::find(origins_.begin(), origins_.end(), origin) != origins_.end();
}

bool AllowedOrigins::is_own(std::string_view origin, std::string_view host) const {
  if (!own_) return false;
  const std::string place = lower_ascii(host);
  if (origin != "http://" + place && origin != "https://" + place) return false;
  const std::string_view name = name_of_host(place);
  if (name.empty()) return false;
  if (own_->any_name || name == "localhost" || is_address(name)) return true;
  return std::ranges::find(own_->names, name) != own_->names.end();
}

std::vector<HttpHeader> AllowedOrigins::fields(std::string_view origin) const {
  const HttpHeader exposed = {"Access-Control-Expose-Headers", "*"};
  if (all_) return {{"Access-Control-Allow-Origin", "*"}, exposed};
  std::vector<HttpHeader> list = {{"Vary", "Origin"}};
  if (!origin.empty() && admits(origin)) {
    list.push_back({"Access-Control-Allow-Origin", std::string(origin)});
    list.push_back(exposed);
  }
  return list;
}

bool is_preflight(const HttpRequest& request) {
  return request.method == "OPTIONS" && !request.header("Origin").empty() &&
         !request.header("Access-Control-Request-Method").empty();
}

HttpResponse preflight_response(const HttpRequest& request) {
  HttpResponse response{.content_type = "text/plain; charset=utf-8", .headers = {}, .body = {}};
  response.headers = {{"Access-Control-Allow-Methods", "GET, POST"},
                      {"Access-Control-Max-Age", std::string(kPreflightSeconds)}};
  // "*" would leave out Authorization.
  const std::string_view wanted = request.header("Access-Control-Request-Headers");
  if (is_name_list(wanted)) {
    response.headers.push_back({"Access-Control-Allow-Headers", std::string(wanted)});
  }
  return response;
}

}  // namespace jige::api
