#include "api/http_peer.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <net/if.h>
#include <netdb.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <optional>
#include <system_error>

#include "base/ascii.h"
#include "base/printable.h"

namespace jige::api {
namespace {

constexpr size_t kHostNameBytesMax = 253;  // of a host (RFC 1035)
constexpr size_t kLabelBytesMax = 63;
constexpr size_t kZoneBytesMax = IF_NAMESIZE - 1;
constexpr size_t kShownColumns = 100;

struct UrlParts {
  std::string host, port, base;
  bool tls = false;
};

// For messages: nothing that commands a terminal, no password, no query, in which a key may stand,
// and no page of text.
std::string shown_url(std::string_view url) {
  std::string text(url);
  const size_t at = text.rfind('@');
  if (at != std::string::npos) {
    const size_t scheme = text.find("://");
    const size_t begin = scheme == std::string::npos ? 0 : scheme + 3;
    if (begin < at) text.replace(begin, at - begin, "...");
  }
  if (const size_t query = text.find('?'); query != std::string::npos) {
    text.replace(query, std::string::npos, "?...");
  }
  text = printable(text);
  return column_count(text) <= kShownColumns ? text : cut_to_columns(text, kShownColumns) + "...";
}

bool is_of_names(char c) { return is_ascii_alphanumeric(c) || c == '-' || c == '_'; }

// What is wrong with it; nothing where that is nothing.
std::optional<std::string> trouble_of_name(std::string_view name) {
  if (name.empty()) return "it has no host";
  if (!std::ranges::all_of(name, [](char c) { return is_of_names(c) || c == '.'; })) {
    return "its host has characters that no host has; names of other scripts begin with xn--";
  }
  if (name.ends_with('.')) name.remove_suffix(1);  // a name that is complete
  if (name.size() > kHostNameBytesMax) {
    return fmt::format("its host has {} characters, of {} at most", name.size(), kHostNameBytesMax);
  }
  for (size_t begin = 0; begin <= name.size();) {
    const size_t end = std::min(name.find('.', begin), name.size());
    if (end == begin) return "its host has nothing before or between two dots";
    if (end - begin > kLabelBytesMax) {
      return fmt::format("its host has {} characters between dots, of {} at most", end - begin,
                         kLabelBytesMax);
    }
    begin = end + 1;
  }
  return std::nullopt;
}

// Likewise; of what stands between brackets.
std::optional<std::string> trouble_of_ipv6(const std::string& host) {
  const std::string address = host.substr(0, host.find('%'));
  in6_addr ignored{};
  if (address.find('\0') != std::string::npos ||
      inet_pton(AF_INET6, address.c_str(), &ignored) != 1) {
    return "what stands between the brackets is no IPv6 address";
  }
  if (address.size() == host.size()) return std::nullopt;
  const std::string_view zone = std::string_view(host).substr(address.size() + 1);
  const bool good = !zone.empty() && zone.size() <= kZoneBytesMax &&
                    std::ranges::all_of(zone, [](char c) { return is_of_names(c) || c == '.'; });
  if (good) return std::nullopt;
  return "behind the % of its IPv6 address is no name of a network interface";
}

// Takes the URL apart. What is wrong with it; nothing where that is nothing.
std::optional<std::string> read_url(std::string_view url, UrlParts& parts) {
  std::string_view rest = url;
  parts.tls = url.starts_with("https://");
  for (const std::string_view scheme : {"http://", "https://"}) {
    if (url.starts_with(scheme)) rest.remove_prefix(scheme.size());
  }
  if (rest.size() == url.size() && url.find("://") != std::string_view::npos) {
    return "it begins with neither http:// nor https://";
  }
  const size_t end = std::min(rest.find_first_of("/?#"), rest.size());
  std::string_view place = rest.substr(0, end);
  parts.base = rest.substr(end);
  while (parts.base.ends_with('/') || parts.base.ends_with("/v1")) {
    parts.base.resize(parts.base.rfind('/'));
  }
  if (place.find('@') != std::string_view::npos) return "a user and a password have no place in it";
  parts.port = parts.tls ? "443" : "80";
  const bool brackets = place.starts_with('[');
  const size_t bracket = brackets ? place.find(']') : 0;  // [::1]:8000
  if (bracket == std::string_view::npos) return "it has a [ without a ]";
  const size_t colon = place.find(':', bracket);
  if (colon != std::string_view::npos) {
    parts.port = place.substr(colon + 1);
    place = place.substr(0, colon);
  }
  if (!brackets && parts.port.find(':') != std::string::npos) {
    return "an IPv6 address stands in brackets, as in http://[::1]:8000";
  }
  if (brackets && place.size() != bracket + 1) return "something follows its ]";
  parts.host = brackets ? place.substr(1, bracket - 1) : place;
  // "%25" is how a URL writes the % in front of a zone (RFC 6874).
  if (const size_t zone = parts.host.find("%25"); brackets && zone != std::string::npos) {
    parts.host.erase(zone + 1, 2);
  }
  if (const auto trouble = brackets ? trouble_of_ipv6(parts.host) : trouble_of_name(parts.host)) {
    return trouble;
  }
  int port = 0;
  const char* port_end = parts.port.data() + parts.port.size();
  const auto [at, error] = std::from_chars(parts.port.data(), port_end, port);
  if (error != std::errc() || at != port_end || port < 1 || port > 65535) {
    return "its port is no number from 1 to 65535";
  }
  parts.port = std::to_string(port);
  const bool plain = std::ranges::all_of(
      parts.base, [](unsigned char c) { return c > ' ' && c < 127 && c != '?' && c != '#'; });
  if (!plain) return "its path has a query or characters that no path has";
  return std::nullopt;
}

Result<UrlParts> split_url(std::string_view url) {
  UrlParts parts;
  const std::optional<std::string> trouble = read_url(url, parts);
  if (!trouble) return parts;
  return fail(Code::kInvalidArgument,
              "\"{}\" is no address of a server: {}; give it as http://HOST:PORT or "
              "https://HOST:PORT",
              shown_url(url), *trouble);
}

std::string shown_host(const UrlParts& parts) {
  const bool ipv6 = parts.host.find(':') != std::string::npos;
  return (ipv6 ? "[" + parts.host + "]:" : parts.host + ":") + parts.port;
}

// Neither the dot of a complete name nor a zone, which is a matter of this machine, is in it.
std::string certified_name(const UrlParts& parts) {
  std::string name = parts.host.substr(0, parts.host.find('%'));
  if (name.ends_with('.')) name.pop_back();
  return name;
}

// `flags`: of getaddrinfo. Nothing where the host is not found; `error` says why.
std::optional<HostAddress> find_address(const UrlParts& parts, int flags, int& error) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = flags | AI_NUMERICSERV;
  addrinfo* found = nullptr;
  error = getaddrinfo(parts.host.c_str(), parts.port.c_str(), &hints, &found);
  if (error != 0 || !found) return std::nullopt;
  // Loopback names often give IPv6 first while servers listen on IPv4.
  const addrinfo* chosen = found;
  for (const addrinfo* one = found; one; one = one->ai_next) {
    if (one->ai_family == AF_INET) {
      chosen = one;
      break;
    }
  }
  HostAddress address{.bytes = chosen->ai_addrlen};
  std::memcpy(&address.socket, chosen->ai_addr, chosen->ai_addrlen);
  freeaddrinfo(found);
  return address;
}

}  // namespace

bool HostAddress::operator==(const HostAddress& other) const {
  return bytes == other.bytes && std::memcmp(&socket, &other.socket, bytes) == 0;
}

Result<std::string> HttpPeer::url_of(std::string_view url) {
  JIGE_TRY(const UrlParts parts, split_url(url));
  return (parts.tls ? "https://" : "http://") + shown_host(parts) + parts.base;
}

Result<HostAddress> HttpPeer::look_up(std::string_view url) {
  JIGE_TRY(const UrlParts parts, split_url(url));
  int error = 0;
  if (const auto address = find_address(parts, 0, error)) return *address;
  return fail(Code::kUnavailable,
              "{}: the host cannot be found: {}; check its name, or give its address",
              shown_url(url), gai_strerror(error));
}

Result<HttpPeer> HttpPeer::read(std::string_view url, const std::string& ca_file) {
  JIGE_TRY(const UrlParts parts, split_url(url));
  HttpPeer peer{.host = shown_host(parts), .base = parts.base, .name = certified_name(parts)};
  int ignored = 0;
  peer.address = find_address(parts, AI_NUMERICHOST, ignored).value_or(HostAddress());
  if (parts.tls) {
    JIGE_TRY(peer.tls, TlsTrust::load(ca_file));
  }
  return peer;
}

Result<HttpPeer> HttpPeer::resolve(std::string_view url, const std::string& ca_file) {
  JIGE_TRY(const HostAddress address, look_up(url));
  JIGE_TRY(HttpPeer peer, read(url, ca_file));
  peer.address = address;
  return peer;
}

}  // namespace jige::api
