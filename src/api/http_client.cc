#include "api/http_client.h"

#include <netdb.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstring>
#include <utility>

#include "base/clock.h"

namespace jige::api {
namespace {

constexpr size_t kReceiveBytes = 64 * 1024;
static_assert(kReceiveBytes >= TlsStream::kReadBytesMin);
constexpr size_t kAnswerBytesMax = size_t{64} << 20;

bool would_block(int error) { return error == EAGAIN || error == EWOULDBLOCK || error == EINTR; }

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

// Line breaks in names and values would forge fields.
std::string without_breaks(std::string text) {
  std::erase_if(text, [](char c) { return c == '\r' || c == '\n'; });
  return text;
}

std::string query_text(const HttpPeer& peer, const HttpQuery& query) {
  std::string text = fmt::format(
      "{} {}{} HTTP/1.1\r\nHost: {}\r\nUser-Agent: jige\r\nAccept: */*\r\nConnection: close\r\n",
      query.method, peer.base, query.path, peer.host);
  if (!query.api_key.empty()) text += fmt::format("Authorization: Bearer {}\r\n", query.api_key);
  for (const HttpHeader& field : query.fields) {
    text += fmt::format("{}: {}\r\n", without_breaks(field.name), without_breaks(field.value));
  }
  if (!query.body.empty()) {
    text +=
        fmt::format("Content-Type: application/json\r\nContent-Length: {}\r\n", query.body.size());
  }
  return text + "\r\n" + query.body;
}

tl::unexpected<Error> broken(std::string_view what, int error) {
  return fail(Code::kUnavailable, "{}: {}", what, std::strerror(error));
}

}  // namespace

Result<HttpPeer> HttpPeer::resolve(std::string_view url, const std::string& ca_file) {
  JIGE_TRY(const UrlParts parts, split_url(url));
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int error = getaddrinfo(parts.host.c_str(), parts.port.c_str(), &hints, &found);
  if (error != 0 || !found) {
    return fail(Code::kUnavailable, "{}: {}", url, gai_strerror(error));
  }
  HttpPeer peer{.host = parts.host + ":" + parts.port, .base = parts.base, .name = parts.host};
  if (parts.host.find(':') != std::string::npos) peer.host = "[" + parts.host + "]:" + parts.port;
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

Result<HttpCall> HttpCall::start(const HttpPeer& peer, const HttpQuery& query) {
  const int fd = socket(peer.address.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (fd < 0) {
    const Code code = errno == EMFILE || errno == ENFILE ? Code::kExhausted : Code::kUnavailable;
    return fail(code, "a connection: {}; `ulimit -n` sets how many there may be",
                std::strerror(errno));
  }
  HttpCall call(fd, query_text(peer, query));
  const int yes = 1;
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
  const auto* address = reinterpret_cast<const sockaddr*>(&peer.address);
  if (connect(fd, address, peer.address_bytes) != 0 && errno != EINPROGRESS) {
    return broken("cannot connect to " + peer.host, errno);
  }
  if (peer.tls) {
    JIGE_TRY(call.tls_, TlsStream::begin(*peer.tls, fd, peer.name));
  }
  return call;
}

HttpCall::HttpCall(HttpCall&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)),
      tls_(std::move(other.tls_)),
      reached_(other.reached_),
      connected_(other.connected_),
      to_send_(std::move(other.to_send_)),
      sent_(other.sent_),
      received_(other.received_),
      hold_bytes_(other.hold_bytes_),
      response_(std::move(other.response_)) {}

HttpCall& HttpCall::operator=(HttpCall&& other) noexcept {
  if (this == &other) return *this;
  if (fd_ >= 0) close(fd_);
  fd_ = std::exchange(other.fd_, -1);
  tls_ = std::move(other.tls_);
  reached_ = other.reached_;
  connected_ = other.connected_;
  to_send_ = std::move(other.to_send_);
  sent_ = other.sent_;
  received_ = other.received_;
  hold_bytes_ = other.hold_bytes_;
  response_ = std::move(other.response_);
  return *this;
}

HttpCall::~HttpCall() {
  if (fd_ >= 0) close(fd_);
}

short HttpCall::wanted_events() const {
  const bool writes =
      tls_ && reached_ && !connected_ ? tls_->wants_to_write() : sent_ < to_send_.size();
  return static_cast<short>(writes ? POLLIN | POLLOUT : POLLIN);
}

Status HttpCall::finish_connecting() {
  if (!reached_) {
    pollfd entry{.fd = fd_, .events = POLLOUT, .revents = 0};
    if (poll(&entry, 1, 0) <= 0) return {};
    int error = 0;
    socklen_t size = sizeof error;
    getsockopt(fd_, SOL_SOCKET, SO_ERROR, &error, &size);
    if (error != 0) return broken("cannot connect", error);
    reached_ = true;
  }
  if (!tls_) {
    connected_ = true;
  } else {
    JIGE_TRY(connected_, tls_->handshake());
  }
  return {};
}

Result<std::optional<size_t>> HttpCall::send_bytes(std::string_view bytes) {
  if (tls_) return tls_->write(bytes);
  const ssize_t count = send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
  if (count >= 0) return static_cast<size_t>(count);
  if (would_block(errno)) return std::nullopt;
  return broken("the connection broke", errno);
}

Result<std::optional<size_t>> HttpCall::receive_bytes(char* into, size_t size) {
  if (tls_) return tls_->read(into, size);
  const ssize_t count = recv(fd_, into, size, 0);
  if (count >= 0) return static_cast<size_t>(count);
  if (would_block(errno)) return std::nullopt;
  return broken("the connection broke", errno);
}

Status HttpCall::advance() {
  if (!connected_) JIGE_DO(finish_connecting());
  if (!connected_) return {};
  // An answer may come, and the connection break, before everything is sent: a refusal.
  const Status sent = send_some();
  const Status received = receive_some();
  if (response_.complete()) return {};
  JIGE_DO(received);
  return sent;
}

Status HttpCall::send_some() {
  while (sent_ < to_send_.size()) {
    JIGE_TRY(const std::optional<size_t> count,
             send_bytes(std::string_view(to_send_).substr(sent_)));
    if (!count) return {};
    sent_ += *count;
  }
  if (!to_send_.empty()) to_send_ = std::string();  // the memory too: a body may be large
  sent_ = 0;
  return {};
}

Status HttpCall::receive_some() {
  char buffer[kReceiveBytes];
  while (!response_.complete() && response_.body_bytes() < hold_bytes_) {
    JIGE_TRY(const std::optional<size_t> count, receive_bytes(buffer, sizeof buffer));
    if (!count) return {};
    if (*count == 0) return response_.end_of_stream();
    received_ += *count;
    JIGE_DO(response_.feed({buffer, *count}));
  }
  return {};
}

Result<HttpAnswer> fetch(const HttpPeer& peer, const HttpQuery& query, double seconds_max) {
  const StopWatch watch;
  JIGE_TRY(HttpCall call, HttpCall::start(peer, query));
  while (!call.response().complete()) {
    const double left_s = seconds_max - watch.seconds();
    if (left_s <= 0) {
      return fail(Code::kUnavailable, "{}{}: no answer within {} s", peer.host, query.path,
                  seconds_max);
    }
    pollfd entry{.fd = call.fd(), .events = call.wanted_events(), .revents = 0};
    poll(&entry, 1, static_cast<int>(std::ceil(std::min(left_s, 1e6) * 1000)));
    if (Status moved = call.advance(); !moved) {
      return with_context(std::move(moved.error()), "{}{}", peer.host, query.path);
    }
    if (call.response().body_bytes() > kAnswerBytesMax) {
      return fail(Code::kExhausted, "{}{}: the answer has more than {} bytes", peer.host,
                  query.path, kAnswerBytesMax);
    }
  }
  return HttpAnswer{.status = call.response().status(), .body = call.response().take_body()};
}

}  // namespace jige::api
