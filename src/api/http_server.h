// HttpServer: HTTP/1.1 over TCP or TLS on a thread of its own. Boost stays behind this header.
//
//   JIGE_TRY(auto server, HttpServer::listen({.port = 8000}, handler));
//   log_info("{}", server->address());
//   …
//   server->stop(2000);
//
// What it defends against: header and body caps (431, 413), a cap on connections and on the bytes
// of all bodies that are being read (503), requests that arrive too slowly (408), idle connections
// (one that is unused makes room for a new one), clients that do not read (the output of one
// stream is bounded; past it the connection ends, and further requests of it wait).
// While an answer is being made the connection is watched: when the client closes its end, also
// half of it, the request counts as given up and Responder::on_gone runs.
// Pages in a browser whose origin is not among `origins` get 403, those of the others are answered
// when they ask if they may (OPTIONS); the handler sees neither. Every answer says to whom it may
// be shown. Requests on one connection are answered one after another, in their order. Threads: the
// handler runs on the server's thread and must not block it; the members of HttpServer may be
// called from any other thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "api/allowed_origins.h"
#include "api/http_message.h"
#include "base/result.h"

namespace jige::api {

// What became of a request, for logs (api/request_log.h).
struct EndedRequest {
  std::string id, client;    // HttpRequest::id; the address that it came from
  std::string method, path;  // empty where the request did not come so far
  int status = 0;            // 0: its client went before there was one
  double seconds = 0;        // since it had come
  uint64_t bytes = 0;        // of its answer, head and framing included
  bool whole = true;         // the answer came to its end
};

struct HttpServerOptions {
  std::string host = "127.0.0.1";
  uint16_t port = 0;                           // 0: one that is free
  std::string tls_certificate_file = {};       // PEM; empty: plain HTTP
  std::string tls_key_file = {};               // PEM
  AllowedOrigins origins = {};                 // whose pages may use it from within a browser
  size_t header_bytes_max = size_t{16} << 10;  // of one request
  size_t body_bytes_max = size_t{8} << 20;
  size_t bodies_bytes_max = size_t{64} << 20;   // all bodies being read
  size_t output_bytes_max = size_t{256} << 10;  // unsent of one stream before its next piece
  int connections_max = 1024;
  int64_t evict_idle_ms = 1000;         // unused for so long, a connection makes room for a new one
  int64_t evict_arriving_ms = 5000;     // where none is, the one whose request takes longest, if so
  int64_t request_timeout_ms = 30'000;  // from the first byte of a request to its last
  int64_t idle_timeout_ms = 75'000;     // between requests
  int64_t write_timeout_ms = 30'000;    // without the client taking a byte
  // After so long without a piece a stream of events gets a comment, which clients pass over and
  // proxies take for life, as long as `alive` says so; 0: none. Its pieces must be whole events.
  // One that has not begun by then begins (Responder::on_silence).
  int64_t event_pause_ms = 0;
  std::function<bool()> alive = [] { return true; };
  std::function<void(const EndedRequest&)> on_ended = {};  // on the server's thread; may be empty
};

struct HttpServerStats {
  int64_t connections_open = 0;
  int64_t connections_total = 0;
  int64_t connections_refused = 0;  // over the cap
  int64_t requests_total = 0;       // that reached the handler
  int64_t requests_refused = 0;     // that did not: too large, too slow, no HTTP, another's page
  int64_t slow_readers_dropped = 0;
};

class HttpServer {
 public:
  // Binds and serves. Fails with kInvalidArgument on an address or certificate that cannot be used,
  // kUnavailable when the port is taken, kIo otherwise.
  static Result<std::unique_ptr<HttpServer>> listen(const HttpServerOptions& options,
                                                    HttpHandler handler);
  virtual ~HttpServer() = default;

  virtual uint16_t port() const = 0;
  // "http://127.0.0.1:8000".
  virtual std::string address() const = 0;
  virtual HttpServerStats stats() const = 0;
  // Stops accepting, gives answers that are complete `flush_ms` to leave, ends all connections and
  // joins the thread. Called once at most; the destructor does it otherwise.
  virtual void stop(int64_t flush_ms) = 0;
};

}  // namespace jige::api
