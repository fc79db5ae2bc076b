// TCP connections that never block for longer than they were told to.
//
//   JIGE_TRY(Listener listener, Listener::open({"127.0.0.1", 0}));
//   JIGE_TRY(Socket out, connect_to(listener.address(), {.name = "rank 1"}, Deadline::after(5)));
//   JIGE_TRY(Socket in, listener.accept({.name = "rank 0"}, Deadline::after(5)));
//   JIGE_DO(out.send_all(bytes, deadline));
//   JIGE_DO(exchange(out, bytes, in, buffer, deadline));   // both ways at once
//
// Invariants: (1) every descriptor is non-blocking and closed on exec; (2) no signal is raised for
// a closed peer; (3) an error names the peer: the name that was given, then its address;
// (4) a closed connection is kUnavailable, a passed deadline is kUnavailable and says so.
// Threads: one thread at a time for one object; distinct objects from distinct threads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "base/result.h"
#include "comm/deadline.h"

namespace jige::comm {

// A host (name or number, IPv4 or IPv6) and a port.
struct Address {
  std::string host;
  int port = 0;

  std::string text() const;  // "10.0.0.1:29500", "[::1]:29500"
};

// Reads "HOST:PORT" or "[HOST]:PORT". Fails with kInvalidArgument.
Result<Address> parse_address(std::string_view text);

struct SocketOptions {
  std::string name;        // of the peer, for errors; its address stands alone where this is empty
  std::string bind_host;   // the local address that connections leave from; empty: any
  std::string congestion;  // a congestion control such as "bbr"; empty: the system's
  int64_t buffer_bytes = 0;  // of the kernel, each way; 0: the system sizes it by itself
};

class Socket {
 public:
  Socket() = default;
  // Takes the descriptor and makes it non-blocking, without delay for small messages.
  Socket(int fd, std::string peer);
  Socket(Socket&& other) noexcept;
  Socket& operator=(Socket&& other) noexcept;
  ~Socket();

  bool is_open() const { return fd_ >= 0; }
  int fd() const { return fd_; }
  const std::string& peer() const { return peer_; }
  void rename(std::string peer) { peer_ = std::move(peer); }
  void close();

  // Takes or gives what is possible now; 0 says that nothing is. Fails with kUnavailable when the
  // peer has closed the connection or cannot be reached any more.
  Result<size_t> send_some(std::span<const std::byte> bytes);
  Result<size_t> recv_some(std::span<std::byte> bytes);

  // All of it, or an error by the deadline.
  Status send_all(std::span<const std::byte> bytes, Deadline deadline);
  Status recv_all(std::span<std::byte> bytes, Deadline deadline);

  // Says that nothing more will be sent; what was sent before still goes.
  void end_sending();
  // Whether the peer's machine has acknowledged all that was sent; where end_sending() was called,
  // the end itself may still be under way, for its acknowledgement is often put off by 40 ms.
  bool is_acknowledged() const;

  // Fails with kUnsupported where the kernel does not have it; the connection then stays as it was.
  Status set_congestion(const std::string& name);
  // What the kernel uses for this connection, such as "cubic".
  std::string congestion() const;
  // The local address, empty host if the kernel does not say.
  Address local_address() const;

 private:
  int fd_ = -1;
  bool ended_ = false;  // end_sending() was called
  std::string peer_;
};

// Sends on one connection and receives on another (or the same), both as fast as they go.
Status exchange(Socket& out, std::span<const std::byte> send, Socket& in,
                std::span<std::byte> receive, Deadline deadline);

// Connects, and tries again while the peer refuses or cannot be reached, until the deadline. A
// congestion control that the kernel lacks is a warning, not an error.
Result<Socket> connect_to(const Address& address, const SocketOptions& options, Deadline deadline);

class Listener {
 public:
  // Port 0 takes a free one; an empty host listens on all addresses. Fails with kUnavailable.
  static Result<Listener> open(const Address& address);
  Listener(Listener&& other) noexcept = default;
  Listener& operator=(Listener&& other) noexcept = default;

  // With the port that was taken.
  const Address& address() const { return address_; }
  int fd() const { return socket_.fd(); }
  // The next connection. bind_host is not looked at.
  Result<Socket> accept(const SocketOptions& options, Deadline deadline);

 private:
  Listener(Socket socket, Address address)
      : socket_(std::move(socket)), address_(std::move(address)) {}
  Socket socket_;
  Address address_;
};

}  // namespace jige::comm
