// HttpWire: the client's end of one connection to a server, plain or over TLS.
//
//   JIGE_TRY(HttpWire wire, HttpWire::connect(peer));
//   …until wire.connected(), whenever the descriptor is ready…  JIGE_DO(wire.go_on_connecting());
//
// Nothing blocks. Threads: one.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string_view>

#include "api/http_peer.h"
#include "api/http_tls.h"
#include "base/result.h"

namespace jige::api {

class HttpWire {
 public:
  // Begins to connect. Fails with kUnavailable and kExhausted (file descriptors).
  static Result<HttpWire> connect(const HttpPeer& peer);
  HttpWire(HttpWire&& other) noexcept;
  HttpWire& operator=(HttpWire&& other) noexcept;
  ~HttpWire();

  int fd() const { return fd_; }
  // With TLS not before the server has shown who it is.
  bool connected() const { return connected_; }
  // What the descriptor must be ready for to go on connecting: writing, else reading.
  bool connects_by_writing() const { return !reached_ || (tls_ && tls_->wants_to_write()); }
  Status go_on_connecting();

  // REQUIRES, of those that follow: connected().
  // Bytes, or nothing where it would block; of received ones 0 is the end. Into less than
  // TlsStream::kReadBytesMin nothing is received.
  Result<std::optional<size_t>> send(std::string_view bytes);
  Result<std::optional<size_t>> receive(char* into, size_t size);
  // Whether nothing waits to be received, neither bytes nor the end: what an unused connection must
  // be like.
  bool quiet();

 private:
  explicit HttpWire(int fd) : fd_(fd) {}

  int fd_ = -1;
  std::unique_ptr<TlsStream> tls_;  // none: plain
  bool reached_ = false;            // by TCP
  bool connected_ = false;
};

}  // namespace jige::api
