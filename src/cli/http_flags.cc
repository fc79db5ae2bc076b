#include "cli/http_flags.h"

#include <sys/resource.h>

#include <algorithm>
#include <cstdlib>
#include <string_view>

#include "api/request_log.h"
#include "base/log.h"
#include "cli/flags.h"
#include "cli/page_address.h"

namespace jige::cli {
namespace {

int64_t whole_ms(double seconds) { return static_cast<int64_t>(seconds * 1000); }

bool is_loopback(std::string_view host) {
  return host == "localhost" || host == "::1" || host.starts_with("127.");
}

}  // namespace

void HttpFlags::declare_address(Flags& flags) {
  flags.text("--host ADDRESS", host, "address to listen on; 0.0.0.0 for every network");
  flags.integer("--port N", port, {.min = 0, .max = 65535},
                "0: one that is free, printed at the start");
  flags.text("--api-key-file FILE", api_key_file,
             "keys that clients must send, one a line; without it the key in the environment "
             "variable JIGE_API_KEY, if there is one");
  flags.text(
      "--allowed-origins LIST", allowed_origins,
      "pages that may use the server from within a browser, such as "
      "https://chat.example,http://10.0.0.5:3000; localhost: those of the browser's machine; "
      "*: all; without it none but its own");
  flags.text("--request-log FILE", request_log,
             "appends a line of JSON for each request that has ended: when, its x-request-id, the "
             "client, the route, the status, how long it took, never what was said; from 256 MiB "
             "on FILE becomes FILE.1 and is begun anew");
  flags.text("--tls-cert FILE", tls_certificate, "PEM certificate chain: serve HTTPS");
  flags.text("--tls-key FILE", tls_key, "PEM private key of --tls-cert");
}

void HttpFlags::declare_connections(Flags& flags) {
  flags.bytes(
      "--max-body SIZE", body_bytes,
      "body of one request at most; without it 8 MiB, of a server that reads images 32 MiB");
  flags.integer("--max-connections N", connections_max, {.min = 1, .max = 1 << 20},
                "connections at once at most");
  flags.number("--idle-seconds S", idle_seconds, {.min = 0.1, .max = 1e6},
               "an unused connection is closed after this");
  flags.number("--request-seconds S", request_seconds, {.min = 0.1, .max = 1e6},
               "a request must have arrived within this");
  flags.number("--write-seconds S", write_seconds, {.min = 0.1, .max = 1e6},
               "a client that reads nothing for so long is given up");
  flags.number("--drain-seconds S", drain_seconds, {.min = 0, .max = 1e6},
               "time for answers under way when the server is told to stop");
}

Result<api::HttpServerOptions> HttpFlags::http_options(const api::ApiKeys& keys, bool page) const {
  const auto body = static_cast<size_t>(body_bytes);
  api::HttpServerOptions options;
  if (!request_log.empty()) {
    auto log = api::RequestLog::open(request_log);
    if (!log) return with_context(std::move(log.error()), "--request-log");
    options.on_ended = [log = *log](const api::EndedRequest& request) { log->note(request); };
  }
  options.host = host;
  options.port = static_cast<uint16_t>(port);
  options.tls_certificate_file = tls_certificate;
  options.tls_key_file = tls_key;
  JIGE_TRY(options.origins, api::AllowedOrigins::parse(allowed_origins, "--allowed-origins"));
  if (page) {
    options.origins.admit_own(
        {.any_name = !keys.empty() || !tls_certificate.empty(), .names = names_of_machine(host)});
  }
  options.body_bytes_max = body;
  options.bodies_bytes_max = std::max(options.bodies_bytes_max, 2 * body);
  options.connections_max = static_cast<int>(connections_max);
  options.idle_timeout_ms = whole_ms(idle_seconds);
  options.request_timeout_ms = whole_ms(request_seconds);
  options.write_timeout_ms = whole_ms(write_seconds);
  return options;
}

Result<api::ApiKeys> HttpFlags::api_keys() const {
  if (!api_key_file.empty()) return api::ApiKeys::load(api_key_file);
  const char* key = std::getenv("JIGE_API_KEY");
  if (!key || !*key) return api::ApiKeys();
  return api::ApiKeys::parse(key, "JIGE_API_KEY");
}

void HttpFlags::warn_if_open(const api::ApiKeys& keys,
                             const api::HttpServerOptions& options) const {
  if (!keys.empty()) return;
  if (!is_loopback(host)) {
    log_warn("anybody who reaches {} may use the model; --api-key-file asks for a key", host);
  }
  if (options.origins.all()) {
    log_warn(
        "any page that a browser opens may use the model; --allowed-origins can name those "
        "that may, --api-key-file asks for a key");
  }
}

void raise_descriptor_limit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
}

}  // namespace jige::cli
