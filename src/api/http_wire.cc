#include "api/http_wire.h"

#include <fmt/format.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

namespace jige::api {
namespace {

bool would_block(int error) { return error == EAGAIN || error == EWOULDBLOCK || error == EINTR; }

tl::unexpected<Error> broken(std::string_view what, int error) {
  return fail(Code::kUnavailable, "{}: {}", what, std::strerror(error));
}

}  // namespace

Result<HttpWire> HttpWire::connect(const HttpPeer& peer) {
  const int fd =
      socket(peer.address.socket.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (fd < 0) {
    const Code code = errno == EMFILE || errno == ENFILE ? Code::kExhausted : Code::kUnavailable;
    return fail(code, "a connection: {}; `ulimit -n` sets how many there may be",
                std::strerror(errno));
  }
  HttpWire wire(fd);
  const int yes = 1;
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
  const auto* address = reinterpret_cast<const sockaddr*>(&peer.address.socket);
  if (::connect(fd, address, peer.address.bytes) != 0 && errno != EINPROGRESS) {
    return broken("cannot connect to " + peer.host, errno);
  }
  if (peer.tls) {
    JIGE_TRY(wire.tls_, TlsStream::begin(*peer.tls, fd, peer.name));
  }
  return wire;
}

HttpWire::HttpWire(HttpWire&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)),
      tls_(std::move(other.tls_)),
      reached_(other.reached_),
      connected_(other.connected_) {}

HttpWire& HttpWire::operator=(HttpWire&& other) noexcept {
  if (this == &other) return *this;
  if (fd_ >= 0) close(fd_);
  fd_ = std::exchange(other.fd_, -1);
  tls_ = std::move(other.tls_);
  reached_ = other.reached_;
  connected_ = other.connected_;
  return *this;
}

HttpWire::~HttpWire() {
  if (fd_ >= 0) close(fd_);
}

Status HttpWire::go_on_connecting() {
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

Result<std::optional<size_t>> HttpWire::send(std::string_view bytes) {
  if (tls_) return tls_->write(bytes);
  const ssize_t count = ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
  if (count >= 0) return static_cast<size_t>(count);
  if (would_block(errno)) return std::nullopt;
  return broken("the connection broke", errno);
}

Result<std::optional<size_t>> HttpWire::receive(char* into, size_t size) {
  if (tls_) return tls_->read(into, size);
  const ssize_t count = recv(fd_, into, size, 0);
  if (count >= 0) return static_cast<size_t>(count);
  if (would_block(errno)) return std::nullopt;
  return broken("the connection broke", errno);
}

bool HttpWire::quiet() {
  // With TLS something may come that is no matter of the connection's user, such as a ticket.
  char buffer[TlsStream::kReadBytesMin];
  const Result<std::optional<size_t>> received = receive(buffer, sizeof buffer);
  return received && !*received;
}

}  // namespace jige::api
