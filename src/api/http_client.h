// A client for HTTP/1.1, plain or over TLS, one request a connection: enough to measure a server,
// to watch it and to send it what others ask.
//
//   JIGE_TRY(const HttpPeer peer, HttpPeer::resolve("http://127.0.0.1:8000"));
//   JIGE_TRY(const HttpPeer other, HttpPeer::resolve("https://llm.example", "our-ca.pem"));
//   JIGE_TRY(const HttpAnswer answer, fetch(peer, {.path = "/v1/models"}, 5));
//   JIGE_TRY(HttpCall call, HttpCall::start(peer, {.method = "POST", .path = …, .body = …}));
//   …poll(call.fd(), call.wanted_events())…  JIGE_DO(call.advance());
//
// An HttpCall never blocks, so one thread can wait for any number of them with poll().
// Threads: values and one thread an HttpCall. fetch() and resolve() block.
#pragma once

#include <netinet/in.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "api/http_message.h"
#include "api/http_tls.h"
#include "api/response_reader.h"
#include "base/result.h"

namespace jige::api {

struct HttpPeer {
  std::string host;  // as the user wrote it, with the port
  std::string base;  // what stands in front of every path; no slash at its end
  std::string name;  // of the host, without the port, as its certificate must have it
  std::shared_ptr<const TlsTrust> tls;  // none: plain HTTP
  sockaddr_storage address{};
  socklen_t address_bytes = 0;

  // Reads http://HOST[:PORT][/BASE], or the same with https, and looks the host up. A base of "/v1"
  // is dropped: paths here begin with it. `ca_file`: as TlsTrust has it, for https alone. Fails
  // with kInvalidArgument or kUnavailable, and as TlsTrust does.
  static Result<HttpPeer> resolve(std::string_view url, const std::string& ca_file = "");
  // As it would be given.
  std::string url() const { return (tls ? "https://" : "http://") + host + base; }
};

struct HttpQuery {
  std::string method = "GET";
  std::string path = "/";
  std::string body;
  std::string api_key;             // sent as a bearer token when not empty
  std::vector<HttpHeader> fields;  // sent besides Host, Connection, and type and length of the body
};

class HttpCall {
 public:
  // Begins to connect. Fails with kUnavailable and kExhausted (file descriptors).
  static Result<HttpCall> start(const HttpPeer& peer, const HttpQuery& query);
  HttpCall(HttpCall&& other) noexcept;
  HttpCall& operator=(HttpCall&& other) noexcept;
  ~HttpCall();

  int fd() const { return fd_; }
  short wanted_events() const;
  // With TLS not before the server has shown who it is.
  bool connected() const { return connected_; }
  // Nothing more is read while so much of the body lies in response(), until it is taken out.
  void hold_body_at(size_t bytes) { hold_bytes_ = bytes; }
  // All that has come so far, the head and what frames the body included.
  size_t received_bytes() const { return received_; }
  // Sends and receives what is possible now. Fails with kUnavailable when the connection breaks or
  // the server's certificate is not accepted, and with kCorrupt on what is no HTTP.
  Status advance();

  ResponseReader& response() { return response_; }
  const ResponseReader& response() const { return response_; }

 private:
  HttpCall(int fd, std::string to_send) : fd_(fd), to_send_(std::move(to_send)) {}
  Status finish_connecting();
  // Bytes, or nothing where it would block; of received ones 0 is the end.
  Result<std::optional<size_t>> send_bytes(std::string_view bytes);
  Result<std::optional<size_t>> receive_bytes(char* into, size_t size);
  Status send_some();
  Status receive_some();

  int fd_ = -1;
  std::unique_ptr<TlsStream> tls_;  // none: plain
  bool reached_ = false;            // by TCP
  bool connected_ = false;
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
