#include "api/http_client.h"

#include <poll.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/clock.h"

namespace jige::api {
namespace {

constexpr size_t kReceiveBytes = 64 * 1024;
static_assert(kReceiveBytes >= TlsStream::kReadBytesMin);
constexpr size_t kAnswerBytesMax = size_t{64} << 20;
constexpr int kRequestTimeout = 408;

// Line breaks in names and values would forge fields.
std::string without_breaks(std::string text) {
  std::erase_if(text, [](char c) { return c == '\r' || c == '\n'; });
  return text;
}

// A zone behind the address ("[fe80::1%eth0]:80") means something on this machine alone.
std::string without_zone(const std::string& host) {
  const size_t zone = host.find('%');
  return zone == std::string::npos ? host : host.substr(0, zone) + host.substr(host.find(']'));
}

std::string query_text(const HttpPeer& peer, const HttpQuery& query) {
  std::string text =
      fmt::format("{} {}{} HTTP/1.1\r\nHost: {}\r\nUser-Agent: jige\r\nAccept: */*\r\n{}",
                  query.method, peer.base, query.path, without_zone(peer.host),
                  query.keep_connection ? "" : "Connection: close\r\n");
  if (!peer.api_key.empty()) text += fmt::format("Authorization: Bearer {}\r\n", peer.api_key);
  for (const HttpHeader& field : query.fields) {
    text += fmt::format("{}: {}\r\n", without_breaks(field.name), without_breaks(field.value));
  }
  if (!query.body.empty()) {
    text +=
        fmt::format("Content-Type: application/json\r\nContent-Length: {}\r\n", query.body.size());
  }
  return text + "\r\n" + query.body;
}

}  // namespace

Result<HttpCall> HttpCall::start(const HttpPeer& peer, const HttpQuery& query) {
  JIGE_TRY(HttpWire wire, HttpWire::connect(peer));
  return HttpCall(std::move(wire), query_text(peer, query));
}

HttpCall HttpCall::start_on(HttpWire wire, const HttpPeer& peer, const HttpQuery& query) {
  HttpCall call(std::move(wire), query_text(peer, query));
  call.reused_ = true;
  return call;
}

short HttpCall::wanted_events() const {
  const bool writes = connected() ? sent_ < to_send_.size() : wire_.connects_by_writing();
  return static_cast<short>(writes ? POLLIN | POLLOUT : POLLIN);
}

std::optional<HttpWire> HttpCall::take_wire() {
  if (!response_.complete() || !response_.leaves_connection() || !to_send_.empty()) {
    return std::nullopt;
  }
  return std::move(wire_);
}

Status HttpCall::advance() {
  if (!connected()) JIGE_DO(wire_.go_on_connecting());
  if (!connected()) return {};
  // An answer may come, and the connection break, before everything is sent: a refusal.
  const Status sent = send_some();
  const Status received = receive_some();
  if (timed_out_unused()) {
    return fail(Code::kUnavailable, "the server had ended the unused connection");
  }
  if (response_.complete()) return {};
  JIGE_DO(received);
  return sent;
}

bool HttpCall::timed_out_unused() const {
  return reused_ && response_.head_complete() && response_.status() == kRequestTimeout &&
         !response_.leaves_connection();
}

Status HttpCall::send_some() {
  while (sent_ < to_send_.size()) {
    JIGE_TRY(const std::optional<size_t> count,
             wire_.send(std::string_view(to_send_).substr(sent_)));
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
    JIGE_TRY(const std::optional<size_t> count, wire_.receive(buffer, sizeof buffer));
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
