// A client for HTTP/1.1, plain or over TLS, one request at a time on a connection: enough to
// measure a server, to watch it and to send it what others ask.
//
//   JIGE_TRY(const HttpPeer peer, HttpPeer::resolve("http://127.0.0.1:8000"));
//   JIGE_TRY(const HttpAnswer answer, fetch(peer, {.path = "/v1/models"}, 5));
//   JIGE_TRY(HttpCall call, HttpCall::start(peer, {.method = "POST", .path = …, .body = …}));
//   …poll(call.fd(), call.wanted_events())…  JIGE_DO(call.advance());
//
// An HttpCall never blocks, so one thread can wait for any number of them with poll().
// What comes on a connection that was used before may be its end: a server may end one that is
// unused at any time, also while the query is on its way (ended_unused).
// Threads: values and one thread an HttpCall. fetch() blocks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "api/http_message.h"
#include "api/http_peer.h"
#include "api/http_wire.h"
#include "api/response_reader.h"
#include "base/result.h"

namespace jige::api {

struct HttpQuery {
  std::string method = "GET";
  std::string path = "/";
  std::string body;
  std::vector<HttpHeader>
      fields;  // sent besides Host, Connection, the key, and type and length of the body
  bool keep_connection = false;  // for other queries
};

class HttpCall {
 public:
  // Begins to connect. Fails with kUnavailable and kExhausted (file descriptors).
  static Result<HttpCall> start(const HttpPeer& peer, const HttpQuery& query);
  // The same on a connection to this peer that another call has left.
  static HttpCall start_on(HttpWire wire, const HttpPeer& peer, const HttpQuery& query);

  int fd() const { return wire_.fd(); }
  short wanted_events() const;
  // With TLS not before the server has shown who it is.
  bool connected() const { return wire_.connected(); }
  // Nothing more is read while so much of the body lies in response(), until it is taken out.
  void hold_body_at(size_t bytes) { hold_bytes_ = bytes; }
  // All that has come so far, the head and what frames the body included.
  size_t received_bytes() const { return received_; }
  // Sends and receives what is possible now. Fails with kUnavailable when the connection breaks,
  // had ended before (ended_unused) or the server's certificate is not accepted, and with kCorrupt
  // on what is no HTTP.
  Status advance();

  ResponseReader& response() { return response_; }
  const ResponseReader& response() const { return response_; }

  // Of a call that failed: whether that may be because the connection was used before and has
  // ended since, before the query came to the server: no byte of an answer has come, or one that
  // is about the connection alone.
  bool ended_unused() const { return reused_ && (received_ == 0 || timed_out_unused()); }
  // The connection, for another call, where the answer is complete and the server keeps it. Behind
  // that response() is all that may be asked for.
  std::optional<HttpWire> take_wire();

 private:
  HttpCall(HttpWire wire, std::string to_send)
      : wire_(std::move(wire)), to_send_(std::move(to_send)) {}
  Status send_some();
  Status receive_some();
  // Whether a connection that was used before is ended by 408: some servers say so to one that was
  // unused for too long, which the query has crossed on its way (RFC 9110, 15.5.9).
  bool timed_out_unused() const;

  HttpWire wire_;
  bool reused_ = false;
  std::string to_send_;
  size_t sent_ = 0;
  size_t received_ = 0;
  size_t hold_bytes_ = SIZE_MAX;
  ResponseReader response_;
};

struct HttpAnswer {
  int status = 0;
  std::string body;
};
// One request from its beginning to its end. Fails as HttpCall does, with kUnavailable when the
// time is up and with kExhausted on bodies above 64 MiB.
Result<HttpAnswer> fetch(const HttpPeer& peer, const HttpQuery& query, double seconds_max);

}  // namespace jige::api
