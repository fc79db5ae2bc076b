// The flags of commands that listen for HTTP: address, keys of clients, TLS, limits of connections.
//
// Threads: one thread.
#pragma once

#include <cstdint>
#include <string>

#include "api/api_keys.h"
#include "api/http_server.h"
#include "base/result.h"

namespace jige::cli {

class Flags;

// How long streams of events may be silent: proxies give them a minute, the router half of it.
inline constexpr int64_t kEventPauseMs = 10'000;

// For complete answers to leave when the server stops.
inline constexpr int64_t kHttpFlushMs = 2000;

struct HttpFlags {
  std::string host = "127.0.0.1";
  int64_t port = 8000;
  std::string tls_certificate, tls_key;
  std::string api_key_file;
  std::string allowed_origins;
  std::string request_log;
  int64_t body_bytes = int64_t{8} << 20;
  int64_t connections_max = 1024;
  double idle_seconds = 75;
  double request_seconds = 30;
  double write_seconds = 30;
  double drain_seconds = 60;

  // In the section that is open.
  void declare_address(Flags& flags);
  void declare_connections(Flags& flags);

  // Fails as AllowedOrigins and RequestLog do. `keys`: those that clients must send; `page`:
  // whether there is one to chat in, which may use the server.
  Result<api::HttpServerOptions> http_options(const api::ApiKeys& keys, bool page) const;
  // The keys of --api-key-file, else those of JIGE_API_KEY, else none. Fails as ApiKeys does.
  Result<api::ApiKeys> api_keys() const;
  // Warnings where anybody may use what listens.
  void warn_if_open(const api::ApiKeys& keys, const api::HttpServerOptions& options) const;
};

// Connections are file descriptors; the usual limit of 1024 would be met before our own.
void raise_descriptor_limit();

}  // namespace jige::cli
