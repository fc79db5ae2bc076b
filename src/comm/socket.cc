#include "comm/socket.h"

#include <fcntl.h>
#include <linux/sockios.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <memory>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "base/log.h"

namespace jige::comm {
namespace {

constexpr int64_t kRetryNs = 20'000'000;  // between two attempts to connect

std::string errno_text(int number) { return std::strerror(number); }

std::string address_text(const sockaddr* address, socklen_t size) {
  char host[NI_MAXHOST];
  char port[NI_MAXSERV];
  if (getnameinfo(address, size, host, sizeof host, port, sizeof port,
                  NI_NUMERICHOST | NI_NUMERICSERV) != 0) {
    return "an unknown address";
  }
  // One of IPv4 that came to a listener of both.
  const std::string_view text = host;
  const bool mapped = text.starts_with("::ffff:") && text.find('.') != std::string_view::npos;
  return Address{std::string(mapped ? text.substr(7) : text), std::atoi(port)}.text();
}

std::string peer_text(const SocketOptions& options, std::string address) {
  return options.name.empty() ? std::move(address) : fmt::format("{} ({})", options.name, address);
}

struct AddressListFree {
  void operator()(addrinfo* list) const { freeaddrinfo(list); }
};
using AddressList = std::unique_ptr<addrinfo, AddressListFree>;

Result<AddressList> resolve(const Address& address, bool passive) {
  addrinfo hints = {};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICSERV | (passive ? AI_PASSIVE : 0);
  addrinfo* list = nullptr;
  const std::string port = std::to_string(address.port);
  const int error = getaddrinfo(address.host.empty() ? nullptr : address.host.c_str(), port.c_str(),
                                &hints, &list);
  if (error != 0 || list == nullptr) {
    return fail(Code::kUnavailable, "{}: the host is not known ({})", address.text(),
                gai_strerror(error));
  }
  return AddressList(list);
}

// Waits for `events` on one descriptor; false when the deadline came first.
bool wait_for(int fd, short events, Deadline deadline) {
  for (;;) {
    pollfd entry = {.fd = fd, .events = events, .revents = 0};
    const int ready = poll(&entry, 1, deadline.poll_ms());
    if (ready > 0) return true;
    if (ready < 0 && errno != EINTR) return true;  // the next call on the descriptor says why
    if (deadline.passed()) return false;
  }
}

void prepare(Socket& socket, const SocketOptions& options) {
  const int size = static_cast<int>(options.buffer_bytes);
  if (size > 0) {
    setsockopt(socket.fd(), SOL_SOCKET, SO_SNDBUF, &size, sizeof size);
    setsockopt(socket.fd(), SOL_SOCKET, SO_RCVBUF, &size, sizeof size);
  }
  if (options.congestion.empty()) return;
  if (auto set = socket.set_congestion(options.congestion); !set) {
    log_warn("{}", set.error().message);
  }
}

// A connection within this machine may be given the very port it goes to as its own. Where nobody
// listens there it then meets itself, which TCP takes for an answer.
bool meets_itself(const Socket& socket) {
  sockaddr_storage own = {}, other = {};
  socklen_t own_size = sizeof own, other_size = sizeof other;
  return getsockname(socket.fd(), reinterpret_cast<sockaddr*>(&own), &own_size) == 0 &&
         getpeername(socket.fd(), reinterpret_cast<sockaddr*>(&other), &other_size) == 0 &&
         own_size == other_size && std::memcmp(&own, &other, own_size) == 0;
}

// One attempt; kUnavailable where another one may succeed, kNotFound where only another address
// may.
Result<Socket> attempt(const addrinfo& target, const SocketOptions& options, Deadline deadline) {
  const std::string peer = peer_text(options, address_text(target.ai_addr, target.ai_addrlen));
  Socket socket(::socket(target.ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0), peer);
  if (!socket.is_open()) {
    return fail(Code::kExhausted, "{}: no socket: {}", peer, errno_text(errno));
  }
  if (!options.bind_host.empty()) {
    JIGE_TRY(const AddressList locals, resolve({options.bind_host, 0}, true));
    const addrinfo* local = locals.get();
    while (local != nullptr && local->ai_family != target.ai_family) local = local->ai_next;
    if (local == nullptr) {
      return fail(Code::kNotFound, "{}: connections cannot leave from {}: it is of another family",
                  peer, options.bind_host);
    }
    if (bind(socket.fd(), local->ai_addr, local->ai_addrlen) != 0) {
      return fail(Code::kInvalidArgument, "{}: connections cannot leave from {}: {}", peer,
                  options.bind_host, errno_text(errno));
    }
  }
  prepare(socket, options);
  if (::connect(socket.fd(), target.ai_addr, target.ai_addrlen) != 0 && errno != EINPROGRESS) {
    return fail(Code::kUnavailable, "{}: {}", peer, errno_text(errno));
  }
  if (!wait_for(socket.fd(), POLLOUT, deadline)) {
    return fail(Code::kUnavailable, "{}: does not answer", peer);
  }
  int error = 0;
  socklen_t size = sizeof error;
  getsockopt(socket.fd(), SOL_SOCKET, SO_ERROR, &error, &size);
  if (error != 0) return fail(Code::kUnavailable, "{}: {}", peer, errno_text(error));
  if (meets_itself(socket)) {
    return fail(Code::kUnavailable, "{}: {}", peer, errno_text(ECONNREFUSED));
  }
  return socket;
}

}  // namespace

std::string Address::text() const {
  return host.find(':') == std::string::npos ? fmt::format("{}:{}", host, port)
                                             : fmt::format("[{}]:{}", host, port);
}

Result<Address> parse_address(std::string_view text) {
  const size_t colon = text.rfind(':');
  const auto refuse = [&] {
    return fail(Code::kInvalidArgument, "\"{}\" is not HOST:PORT, such as 10.0.0.1:29500", text);
  };
  if (colon == std::string_view::npos) return refuse();
  std::string_view host = text.substr(0, colon);
  const std::string_view digits = text.substr(colon + 1);
  if (host.size() >= 2 && host.front() == '[' && host.back() == ']') {
    host = host.substr(1, host.size() - 2);
  } else if (host.find(':') != std::string_view::npos) {
    return refuse();
  }
  int port = -1;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), port);
  if (error != std::errc() || end != digits.data() + digits.size() || port < 0 || port > 65535) {
    return refuse();
  }
  return Address{std::string(host), port};
}

Socket::Socket(int fd, std::string peer) : fd_(fd), peer_(std::move(peer)) {
  if (fd_ < 0) return;
  fcntl(fd_, F_SETFL, fcntl(fd_, F_GETFL) | O_NONBLOCK);
  const int on = 1;
  setsockopt(fd_, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

Socket::Socket(Socket&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)), ended_(other.ended_), peer_(std::move(other.peer_)) {}

Socket& Socket::operator=(Socket&& other) noexcept {
  if (this != &other) {
    close();
    fd_ = std::exchange(other.fd_, -1);
    ended_ = other.ended_;
    peer_ = std::move(other.peer_);
  }
  return *this;
}

Socket::~Socket() { close(); }

void Socket::close() {
  if (fd_ >= 0) ::close(fd_);
  fd_ = -1;
}

Result<size_t> Socket::send_some(std::span<const std::byte> bytes) {
  if (bytes.empty()) return 0;
  for (;;) {
    const ssize_t sent = ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent >= 0) return static_cast<size_t>(sent);
    if (errno == EAGAIN || errno == EWOULDBLOCK) return 0;
    if (errno == EINTR) continue;
    if (errno == EPIPE || errno == ECONNRESET) {
      return fail(Code::kUnavailable, "{}: closed the connection", peer_);
    }
    return fail(Code::kUnavailable, "{}: sending failed: {}", peer_, errno_text(errno));
  }
}

Result<size_t> Socket::recv_some(std::span<std::byte> bytes) {
  if (bytes.empty()) return 0;
  for (;;) {
    const ssize_t received = ::recv(fd_, bytes.data(), bytes.size(), 0);
    if (received > 0) return static_cast<size_t>(received);
    if (received < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return 0;
    if (received < 0 && errno == EINTR) continue;
    if (received == 0 || errno == ECONNRESET) {
      return fail(Code::kUnavailable, "{}: closed the connection", peer_);
    }
    return fail(Code::kUnavailable, "{}: receiving failed: {}", peer_, errno_text(errno));
  }
}

Status Socket::send_all(std::span<const std::byte> bytes, Deadline deadline) {
  return exchange(*this, bytes, *this, {}, deadline);
}

Status Socket::recv_all(std::span<std::byte> bytes, Deadline deadline) {
  return exchange(*this, {}, *this, bytes, deadline);
}

void Socket::end_sending() {
  ::shutdown(fd_, SHUT_WR);
  ended_ = true;
}

bool Socket::is_acknowledged() const {
  int unacknowledged = 0;
  // The end counts as one byte, the last.
  return ioctl(fd_, SIOCOUTQ, &unacknowledged) == 0 && unacknowledged <= (ended_ ? 1 : 0);
}

Status Socket::set_congestion(const std::string& name) {
  if (setsockopt(fd_, IPPROTO_TCP, TCP_CONGESTION, name.data(),
                 static_cast<socklen_t>(name.size())) != 0) {
    return fail(Code::kUnsupported, "{}: congestion control \"{}\" is not there: {}; {} stays",
                peer_, name, errno_text(errno), congestion());
  }
  return {};
}

std::string Socket::congestion() const {
  char name[16] = {};
  socklen_t size = sizeof name - 1;
  if (getsockopt(fd_, IPPROTO_TCP, TCP_CONGESTION, name, &size) != 0) return "unknown";
  return name;
}

Address Socket::local_address() const {
  sockaddr_storage storage = {};
  socklen_t size = sizeof storage;
  auto* address = reinterpret_cast<sockaddr*>(&storage);
  char host[NI_MAXHOST];
  char port[NI_MAXSERV];
  if (getsockname(fd_, address, &size) != 0 ||
      getnameinfo(address, size, host, sizeof host, port, sizeof port,
                  NI_NUMERICHOST | NI_NUMERICSERV) != 0) {
    return {};
  }
  return {host, std::atoi(port)};
}

Status exchange(Socket& out, std::span<const std::byte> send, Socket& in,
                std::span<std::byte> receive, Deadline deadline) {
  while (!send.empty() || !receive.empty()) {
    JIGE_TRY(const size_t sent, out.send_some(send));
    send = send.subspan(sent);
    JIGE_TRY(const size_t received, in.recv_some(receive));
    receive = receive.subspan(received);
    if (sent > 0 || received > 0) continue;
    pollfd entries[2] = {
        {.fd = send.empty() ? -1 : out.fd(), .events = POLLOUT, .revents = 0},
        {.fd = receive.empty() ? -1 : in.fd(), .events = POLLIN, .revents = 0},
    };
    if (poll(entries, 2, deadline.poll_ms()) == 0 && deadline.passed()) {
      return send.empty()
                 ? fail(Code::kUnavailable, "{}: sent nothing until the deadline, {} bytes are due",
                        in.peer(), receive.size())
                 : fail(Code::kUnavailable,
                        "{}: took nothing until the deadline, {} bytes are left", out.peer(),
                        send.size());
    }
  }
  return {};
}

Result<Socket> connect_to(const Address& address, const SocketOptions& options, Deadline deadline) {
  const std::string peer = peer_text(options, address.text());
  for (;;) {
    JIGE_TRY(const AddressList targets, resolve(address, false));
    std::optional<Error> last;
    for (const addrinfo* target = targets.get(); target != nullptr; target = target->ai_next) {
      auto socket = attempt(*target, options, deadline);
      if (socket) {
        socket->rename(peer);
        return socket;
      }
      const Code code = socket.error().code;
      if (code != Code::kUnavailable && code != Code::kNotFound) return socket;
      if (!last || code == Code::kUnavailable) last = std::move(socket.error());
    }
    if (last->code == Code::kNotFound) return fail(Code::kInvalidArgument, "{}", last->message);
    if (deadline.left_ns() <= kRetryNs) {
      return fail(Code::kUnavailable, "no connection until the deadline: {}", last->message);
    }
    std::this_thread::sleep_for(std::chrono::nanoseconds(kRetryNs));
  }
}

Result<Listener> Listener::open(const Address& address) {
  JIGE_TRY(const AddressList list, resolve(address, true));
  std::vector<const addrinfo*> targets;
  for (const addrinfo* at = list.get(); at != nullptr; at = at->ai_next) targets.push_back(at);
  const bool all = address.host.empty();
  if (all) {  // the one of IPv6 takes connections of both
    std::ranges::stable_partition(targets, [](auto* at) { return at->ai_family == AF_INET6; });
  }
  int error = 0;
  for (const addrinfo* target : targets) {
    Socket socket(::socket(target->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0), address.text());
    if (!socket.is_open()) {
      error = errno;
      continue;
    }
    const int on = 1;
    setsockopt(socket.fd(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    const int off = 0;
    if (all && target->ai_family == AF_INET6) {
      setsockopt(socket.fd(), IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
    }
    if (bind(socket.fd(), target->ai_addr, target->ai_addrlen) != 0 ||
        ::listen(socket.fd(), 1024) != 0) {
      error = errno;
      continue;
    }
    Address taken = address;
    taken.port = socket.local_address().port;
    return Listener(std::move(socket), std::move(taken));
  }
  return fail(Code::kUnavailable, "{}: cannot listen: {}", address.text(), errno_text(error));
}

Result<Socket> Listener::accept(const SocketOptions& options, Deadline deadline) {
  for (;;) {
    sockaddr_storage storage = {};
    socklen_t size = sizeof storage;
    auto* from = reinterpret_cast<sockaddr*>(&storage);
    const int fd = accept4(socket_.fd(), from, &size, SOCK_CLOEXEC);
    if (fd >= 0) {
      Socket socket(fd, peer_text(options, address_text(from, size)));
      prepare(socket, options);
      return socket;
    }
    const bool transient = errno == EAGAIN || errno == EINTR || errno == ECONNABORTED;
    if (!transient) {
      return fail(Code::kExhausted, "{}: no connection can be taken: {}", address_.text(),
                  errno_text(errno));
    }
    if (!wait_for(socket_.fd(), POLLIN, deadline)) {
      return fail(Code::kUnavailable, "{}: nobody connected until the deadline", address_.text());
    }
  }
}

}  // namespace jige::comm
