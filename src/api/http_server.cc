#include "api/http_server.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/connect.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <thread>

#include "api/http_connection.h"
#include "api/tls_context.h"
#include "base/log.h"

namespace jige::api {

namespace asio = boost::asio;

namespace {

using ErrorCode = HttpStream::ErrorCode;
using tcp = asio::ip::tcp;

constexpr std::chrono::milliseconds kSweep(100);
constexpr std::chrono::milliseconds kAcceptPause(50);

class Server final : public HttpServer {
 public:
  Server(const HttpServerOptions& options, HttpHandler handler, TlsContext tls)
      : core_(std::make_shared<HttpCore>(options, std::move(handler))),
        tls_(std::move(tls)),
        acceptor_(core_->io),
        sweep_timer_(core_->io),
        accept_timer_(core_->io) {}

  ~Server() override { stop(0); }

  Status bind();
  void start();

  uint16_t port() const override { return port_; }
  std::string address() const override {
    const std::string& host = core_->options.host;
    const bool ipv6 = host.find(':') != std::string::npos;
    return fmt::format("{}://{}{}{}:{}", tls_ ? "https" : "http", ipv6 ? "[" : "", host,
                       ipv6 ? "]" : "", port_);
  }
  HttpServerStats stats() const override {
    const std::lock_guard lock(core_->stats_mutex);
    return core_->stats;
  }
  void stop(int64_t flush_ms) override;

 private:
  asio::awaitable<void> accept_loop();
  asio::awaitable<void> sweep_loop();
  void take(tcp::socket socket);
  bool make_room();
  void end_all();

  std::shared_ptr<HttpCore> core_;
  TlsContext tls_;
  tcp::acceptor acceptor_;
  asio::steady_timer sweep_timer_;
  asio::steady_timer accept_timer_;
  std::chrono::steady_clock::time_point end_at_ = std::chrono::steady_clock::time_point::max();
  uint16_t port_ = 0;
  std::thread thread_;
};

Status Server::bind() {
  const HttpServerOptions& options = core_->options;
  ErrorCode error;
  tcp::resolver resolver(core_->io);
  const auto found =
      resolver.resolve(options.host, std::to_string(options.port), tcp::resolver::passive, error);
  if (error || found.empty()) {
    return fail(Code::kInvalidArgument, "{}: is no address of this machine: {}", options.host,
                error.message());
  }
  const tcp::endpoint endpoint = found.begin()->endpoint();
  acceptor_.open(endpoint.protocol(), error);
  if (!error) acceptor_.set_option(tcp::acceptor::reuse_address(true), error);
  if (!error) acceptor_.bind(endpoint, error);
  if (error == asio::error::address_in_use) {
    return fail(Code::kUnavailable, "{}:{}: is in use by another program; choose another --port",
                options.host, options.port);
  }
  if (error == boost::system::errc::address_not_available) {
    return fail(Code::kInvalidArgument,
                "{}: is no address of this machine; 0.0.0.0 stands for all of its own",
                options.host);
  }
  if (!error) acceptor_.listen(asio::socket_base::max_listen_connections, error);
  if (error == asio::error::access_denied) {
    return fail(Code::kInvalidArgument, "{}:{}: this user may not listen there", options.host,
                options.port);
  }
  if (error) return fail(Code::kIo, "{}:{}: {}", options.host, options.port, error.message());
  port_ = acceptor_.local_endpoint(error).port();
  return {};
}

void Server::start() {
  const auto ended = [](const std::exception_ptr& thrown) {
    if (thrown) log_error("the HTTP server ran out of memory; it accepts no more connections");
  };
  asio::co_spawn(core_->io, accept_loop(), ended);
  asio::co_spawn(core_->io, sweep_loop(), ended);
  thread_ = std::thread([core = core_] {
    for (;;) {
      try {
        core->io.run();
        return;
      } catch (const std::exception& error) {
        // Only memory runs out here; the request at hand is lost, the others go on.
        log_error("HTTP server: {}", error.what());
      }
    }
  });
}

asio::awaitable<void> Server::accept_loop() {
  while (!core_->stopping) {
    ErrorCode error;
    tcp::socket socket(core_->io);
    co_await acceptor_.async_accept(socket, asio::redirect_error(asio::use_awaitable, error));
    if (core_->stopping) co_return;
    if (error) {
      // Out of file descriptors, usually: closing connections will give some back.
      accept_timer_.expires_after(kAcceptPause);
      ErrorCode ignored;
      co_await accept_timer_.async_wait(asio::redirect_error(asio::use_awaitable, ignored));
      continue;
    }
    take(std::move(socket));
  }
}

void Server::take(tcp::socket socket) {
  core_->count(&HttpServerStats::connections_total, 1);
  ErrorCode ignored;
  socket.set_option(tcp::no_delay(true), ignored);
  // What the kernel keeps for a client that does not read is bounded too.
  const auto output_bytes =
      static_cast<int>(std::min<size_t>(core_->options.output_bytes_max, 1 << 20));
  socket.set_option(asio::socket_base::send_buffer_size(output_bytes), ignored);
  if (std::ssize(core_->connections) >= core_->options.connections_max && !make_room()) {
    core_->count(&HttpServerStats::connections_refused, 1);
    HttpResponse response;
    response.status = 503;
    response.headers = {{"Retry-After", "1"}, {std::string(kRequestIdField), core_->ids.next()}};
    response.body = fmt::format(
        R"({{"error":{{"message":"all {} connections are taken","type":"overloaded_error",)"
        R"("param":null,"code":null}}}})",
        core_->options.connections_max);
    const std::string bytes = response_head(response, {.keep_alive = false}) + response.body;
    socket.non_blocking(true, ignored);
    if (!tls_) socket.send(asio::buffer(bytes), 0, ignored);
    return;
  }
  const auto connection = std::make_shared<HttpConnection>(core_, std::move(socket), tls_.get());
  core_->connections.insert(connection);
  core_->count(&HttpServerStats::connections_open, 1);
  connection->start();
}

asio::awaitable<void> Server::sweep_loop() {
  for (;;) {
    sweep_timer_.expires_after(kSweep);
    ErrorCode ignored;
    co_await sweep_timer_.async_wait(asio::redirect_error(asio::use_awaitable, ignored));
    const auto now = std::chrono::steady_clock::now();
    const auto connections = core_->connections;  // check_deadline() takes from the set
    for (const auto& connection : connections) connection->check_deadline(now);
    if (!core_->stopping) continue;
    if (now >= end_at_) end_all();
    if (core_->connections.empty()) co_return;
  }
}

// Ends a connection that nobody has used for a while, or else the one whose request has been
// longest on its way, so that neither idle ones nor those that say a byte now and then keep others
// out.
bool Server::make_room() {
  const auto now = std::chrono::steady_clock::now();
  const auto unused_since = now - std::chrono::milliseconds(core_->options.evict_idle_ms);
  auto arriving_since = now - std::chrono::milliseconds(core_->options.evict_arriving_ms);
  std::shared_ptr<HttpConnection> ended;  // close() takes it from the set
  for (const auto& connection : core_->connections) {
    if (connection->unused_since(unused_since)) {
      ended = connection;
      break;
    }
    if (connection->arriving_since() > arriving_since) continue;
    arriving_since = connection->arriving_since();
    ended = connection;
  }
  if (ended) ended->close();
  return ended != nullptr;
}

void Server::end_all() {
  const auto connections = core_->connections;
  for (const auto& connection : connections) connection->close();
}

void Server::stop(int64_t flush_ms) {
  if (!thread_.joinable()) return;
  core_->post([this, flush_ms] {
    core_->stopping = true;
    end_at_ = std::chrono::steady_clock::now() + std::chrono::milliseconds(flush_ms);
    ErrorCode ignored;
    acceptor_.close(ignored);
    accept_timer_.cancel();
    const auto connections = core_->connections;
    for (const auto& connection : connections) connection->wind_down();
    if (flush_ms <= 0) end_all();
    sweep_timer_.cancel();
  });
  core_->close();
  thread_.join();
}

}  // namespace

Result<std::unique_ptr<HttpServer>> HttpServer::listen(const HttpServerOptions& options,
                                                       HttpHandler handler) {
  TlsContext tls;
  if (options.tls_certificate_file.empty() != options.tls_key_file.empty()) {
    return fail(Code::kInvalidArgument,
                "--tls-cert and --tls-key go together: TLS needs both files");
  }
  if (!options.tls_certificate_file.empty()) {
    JIGE_TRY(tls, make_tls_context(options.tls_certificate_file, options.tls_key_file));
  }
  auto server = std::make_unique<Server>(options, std::move(handler), std::move(tls));
  JIGE_DO(server->bind());
  server->start();
  return std::unique_ptr<HttpServer>(std::move(server));
}

}  // namespace jige::api
