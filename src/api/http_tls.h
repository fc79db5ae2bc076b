// TLS of the HTTP client: whose certificates it believes, and its end of one connection. Internal
// to the HTTP client (api/http_client.h), whose descriptors never block, so that OpenSSL is called
// directly here; the server's end is Boost.Asio's (api/http_stream.h).
//
//   JIGE_TRY(const auto trust, TlsTrust::load(""));            // the system's
//   JIGE_TRY(auto stream, TlsStream::begin(*trust, fd, "llm.example"));
//   …until it is true, whenever the descriptor is ready…  JIGE_TRY(done, stream->handshake());
//
// TLS 1.2 and later. A server must show a certificate for the very name or address that was asked
// for, signed by somebody who is believed; there is no way to do without. An end that the server
// does not announce is an error: what came may have been cut off on its way.
// Threads: a TlsTrust is read by any; a TlsStream belongs to one.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"

struct ssl_ctx_st;
struct ssl_st;

namespace jige::api {

class TlsTrust {
 public:
  // The authorities of the file (PEM), or of the system where it is empty. Fails as read_file does,
  // and with kInvalidArgument on a file without certificates.
  static Result<std::shared_ptr<const TlsTrust>> load(const std::string& ca_file);
  ~TlsTrust();
  TlsTrust(const TlsTrust&) = delete;
  TlsTrust& operator=(const TlsTrust&) = delete;

 private:
  friend class TlsStream;
  explicit TlsTrust(ssl_ctx_st* context) : context_(context) {}
  ssl_ctx_st* context_;
};

class TlsStream {
 public:
  // Whole records come of a read into so many bytes: nothing is left that a poll would not see.
  static constexpr size_t kReadBytesMin = size_t{16} << 10;

  // `name`: of the server, or its address. The descriptor stays the caller's. Fails with
  // kExhausted.
  static Result<std::unique_ptr<TlsStream>> begin(const TlsTrust& trust, int fd,
                                                  const std::string& name);
  ~TlsStream();
  TlsStream(const TlsStream&) = delete;
  TlsStream& operator=(const TlsStream&) = delete;

  // Goes on with it; true once it is done. Fails with kUnavailable, saying what is wrong with the
  // certificate.
  Result<bool> handshake();
  // Bytes that went, or nothing where the descriptor must be waited for.
  Result<std::optional<size_t>> write(std::string_view bytes);
  // Bytes that came, 0 at the end that the server announced, or nothing as above.
  // REQUIRES: size >= kReadBytesMin.
  Result<std::optional<size_t>> read(char* into, size_t size);
  // What a descriptor must be ready for to go on with the handshake: writing, else reading.
  bool wants_to_write() const { return wants_to_write_; }

 private:
  explicit TlsStream(ssl_st* ssl) : ssl_(ssl) {}
  // What became of a call: nothing where it must wait, 0 at the end, else an error.
  Result<std::optional<size_t>> outcome(int returned, const char* what);

  ssl_st* ssl_;
  bool wants_to_write_ = true;
};

}  // namespace jige::api
