// HttpPeer: where a server is, by its URL.
//
//   JIGE_TRY(const HttpPeer peer, HttpPeer::resolve("http://127.0.0.1:8000"));
//   JIGE_TRY(const HttpPeer other, HttpPeer::resolve("https://llm.example", "our-ca.pem"));
//
// Threads: values. resolve() and look_up() wait for what finds names, which may take long.
#pragma once

#include <netinet/in.h>
#include <sys/socket.h>

#include <memory>
#include <string>
#include <string_view>

#include "api/http_tls.h"
#include "base/result.h"

namespace jige::api {

// Where the host of a URL is.
struct HostAddress {
  sockaddr_storage socket{};
  socklen_t bytes = 0;  // 0: that is not known

  bool operator==(const HostAddress& other) const;
};

struct HttpPeer {
  std::string host;  // as the user wrote it, with the port
  std::string base;  // what stands in front of every path; no slash at its end
  std::string name;  // of the host, without port and zone, as its certificate must have it
  std::shared_ptr<const TlsTrust> tls;  // none: plain HTTP
  std::string api_key;  // sent to it as a bearer token when not empty; told nobody else
  HostAddress address;

  // Reads http://HOST[:PORT][/BASE], or the same with https, and looks the host up. A base of "/v1"
  // is dropped: paths here begin with it. `ca_file`: as TlsTrust has it, for https alone. Fails
  // with kInvalidArgument (the URL, saying what is wrong with it), kUnavailable (the host is not
  // found), and as TlsTrust does.
  static Result<HttpPeer> resolve(std::string_view url, const std::string& ca_file = "");
  // The same without looking anything up: the address of a host with a name is not known. Fails
  // likewise, but for kUnavailable.
  static Result<HttpPeer> read(std::string_view url, const std::string& ca_file = "");
  // The address that resolve() finds. Fails with kInvalidArgument and kUnavailable, as it does.
  static Result<HostAddress> look_up(std::string_view url);
  // What url() of a peer that is given so would be, without looking its host up. Fails with
  // kInvalidArgument.
  static Result<std::string> url_of(std::string_view url);
  // As it would be given.
  std::string url() const { return (tls ? "https://" : "http://") + host + base; }
};

}  // namespace jige::api
