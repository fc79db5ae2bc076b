#include "api/http_peer.h"

#include <netdb.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <system_error>

namespace jige::api {
namespace {

struct UrlParts {
  std::string host, port, base;
  bool tls = false;
};

Result<UrlParts> split_url(std::string_view url) {
  UrlParts parts{.tls = url.starts_with("https://")};
  std::string_view rest = url;
  for (const std::string_view scheme : {"http://", "https://"}) {
    if (url.starts_with(scheme)) rest.remove_prefix(scheme.size());
  }
  const size_t slash = std::min(rest.find('/'), rest.size());
  std::string_view host = rest.substr(0, slash);
  parts.base = rest.substr(slash);
  while (parts.base.ends_with('/')) parts.base.pop_back();
  if (parts.base.ends_with("/v1")) parts.base.resize(parts.base.size() - 3);
  parts.port = parts.tls ? "443" : "80";
  const size_t bracket = host.find(']');  // [::1]:8000
  const size_t colon = host.find(':', bracket == std::string_view::npos ? 0 : bracket);
  if (colon != std::string_view::npos) {
    parts.port = host.substr(colon + 1);
    host = host.substr(0, colon);
  }
  if (host.starts_with('[') && host.ends_with(']')) host = host.substr(1, host.size() - 2);
  parts.host = host;
  int port = 0;
  const char* end = parts.port.data() + parts.port.size();
  const auto [at, error] = std::from_chars(parts.port.data(), end, port);
  const bool plain = std::ranges::all_of(url, [](unsigned char c) { return c > ' ' && c < 127; });
  if (host.empty() || !plain || error != std::errc() || at != end || port < 1 || port > 65535) {
    return fail(
        Code::kInvalidArgument,
        "\"{}\" is no address of a server; give it as http://HOST:PORT or https://HOST:PORT", url);
  }
  return parts;
}

std::string shown_host(const UrlParts& parts) {
  const bool ipv6 = parts.host.find(':') != std::string::npos;
  return (ipv6 ? "[" + parts.host + "]:" : parts.host + ":") + parts.port;
}

}  // namespace

Result<std::string> HttpPeer::url_of(std::string_view url) {
  JIGE_TRY(const UrlParts parts, split_url(url));
  return (parts.tls ? "https://" : "http://") + shown_host(parts) + parts.base;
}

Result<HttpPeer> HttpPeer::resolve(std::string_view url, const std::string& ca_file) {
  JIGE_TRY(const UrlParts parts, split_url(url));
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int error = getaddrinfo(parts.host.c_str(), parts.port.c_str(), &hints, &found);
  if (error != 0 || !found) {
    return fail(Code::kUnavailable, "{}: {}", url, gai_strerror(error));
  }
  HttpPeer peer{.host = shown_host(parts), .base = parts.base, .name = parts.host};
  // Loopback names often give IPv6 first while servers listen on IPv4.
  const addrinfo* chosen = found;
  for (const addrinfo* one = found; one; one = one->ai_next) {
    if (one->ai_family == AF_INET) {
      chosen = one;
      break;
    }
  }
  std::memcpy(&peer.address, chosen->ai_addr, chosen->ai_addrlen);
  peer.address_bytes = chosen->ai_addrlen;
  freeaddrinfo(found);
  if (parts.tls) {
    JIGE_TRY(peer.tls, TlsTrust::load(ca_file));
  }
  return peer;
}

}  // namespace jige::api
