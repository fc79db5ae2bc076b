// HTTPS: the server with a certificate made on the spot, and a client that verifies it.
#include <gtest/gtest.h>
#include <openssl/err.h>
#include <openssl/ssl.h>

#include <memory>
#include <string>

#include "api/http_server.h"
#include "api/test_client.h"
#include "api/tls_test_support.h"
#include "base/file.h"

namespace jige::api {
namespace {

using testing::Certificate;
using testing::Owned;
using testing::request_text;
using testing::TestClient;

class TlsClient {
 public:
  TlsClient(uint16_t port, const Certificate& certificate, int version_max = 0)
      : client_(port), context_(SSL_CTX_new(TLS_client_method())) {
    SSL_CTX_load_verify_locations(context_.get(), certificate.certificate_file.c_str(), nullptr);
    SSL_CTX_set_verify(context_.get(), SSL_VERIFY_PEER, nullptr);
    if (version_max != 0) SSL_CTX_set_max_proto_version(context_.get(), version_max);
    ssl_.reset(SSL_new(context_.get()));
    SSL_set_fd(ssl_.get(), client_.fd());
    connected_ = SSL_connect(ssl_.get()) == 1;
    ERR_clear_error();
  }
  bool connected() const { return connected_; }
  void send(const std::string& text) {
    EXPECT_GT(SSL_write(ssl_.get(), text.data(), static_cast<int>(text.size())), 0);
  }
  std::string read_until(const std::string& mark) {
    std::string text;
    char buffer[4096];
    while (text.find(mark) == std::string::npos) {
      const int count = SSL_read(ssl_.get(), buffer, sizeof buffer);
      if (count <= 0) break;
      text.append(buffer, static_cast<size_t>(count));
    }
    return text;
  }
  void reset() { client_.reset(); }
  // Says that it ends the connection; whether the server then says so, too.
  bool end_answered() {
    EXPECT_EQ(SSL_shutdown(ssl_.get()), 0);
    return told_of_end();
  }
  // Whether the server says that it ends the connection, rather than just going.
  bool told_of_end() {
    read_until("no such text");
    return SSL_get_shutdown(ssl_.get()) & SSL_RECEIVED_SHUTDOWN;
  }

 private:
  TestClient client_;
  Owned<SSL_CTX, SSL_CTX_free> context_;
  Owned<SSL, SSL_free> ssl_;
  bool connected_ = false;
};

class Tls : public ::testing::Test {
 protected:
  Tls() { start({.request_timeout_ms = 300, .idle_timeout_ms = 1000}); }

  void start(HttpServerOptions options) {
    options.tls_certificate_file = certificate_.certificate_file;
    options.tls_key_file = certificate_.key_file;
    auto made = HttpServer::listen(
        options, [](HttpRequest request, const std::shared_ptr<Responder>& responder) {
          if (request.path != "/stream") return responder->respond({.body = request.body + "|end"});
          responder->begin({});
          for (int i = 0; i < 100; ++i) responder->write(std::string(100, 'x'));
          responder->write("|end");
          responder->end();
        });
    EXPECT_TRUE(made) << made.error().message;
    server_ = std::move(*made);
  }

  Certificate certificate_;
  std::unique_ptr<HttpServer> server_;
};

TEST_F(Tls, ServesOverACertificate) {
  EXPECT_TRUE(server_->address().starts_with("https://127.0.0.1:"));
  TlsClient client(server_->port(), certificate_);
  ASSERT_TRUE(client.connected());
  client.send(request_text("POST", "/", std::string(5000, 'b')));
  EXPECT_NE(client.read_until("|end").find(std::string(5000, 'b')), std::string::npos);
  client.send(request_text("GET", "/stream"));
  EXPECT_NE(client.read_until("|end").find("|end"), std::string::npos);
}

TEST_F(Tls, TellsOfTheEndOfConnections) {
  for (const int version : {TLS1_2_VERSION, TLS1_3_VERSION}) {
    TlsClient asked(server_->port(), certificate_, version);
    asked.send(request_text("GET", "/", "", "Connection: close\r\n"));
    EXPECT_TRUE(asked.told_of_end());
    TlsClient refused(server_->port(), certificate_, version);
    refused.send("no HTTP\r\n\r\n");
    EXPECT_TRUE(refused.told_of_end());
    TlsClient idle(server_->port(), certificate_, version);
    EXPECT_TRUE(idle.told_of_end());
  }
}

TEST_F(Tls, TellsIdleConnectionsOfItsOwnEnd) {
  for (const int version : {TLS1_2_VERSION, TLS1_3_VERSION}) {
    for (const int64_t flush_ms : {0, 5000}) {
      start({.idle_timeout_ms = 60'000});
      TlsClient fresh(server_->port(), certificate_, version);
      TlsClient served(server_->port(), certificate_, version);
      // The server's thread is done with the one before when it answers the next.
      TlsClient last(server_->port(), certificate_, version);
      for (TlsClient* client : {&served, &last}) {
        client->send(request_text("GET", "/"));
        client->read_until("|end");
      }
      server_->stop(flush_ms);
      EXPECT_TRUE(fresh.told_of_end()) << version << " " << flush_ms;
      EXPECT_TRUE(served.told_of_end()) << version << " " << flush_ms;
    }
  }
}

TEST_F(Tls, TellsAConnectionThatMustMakeRoomOfItsEnd) {
  start({.connections_max = 1, .evict_idle_ms = 0, .idle_timeout_ms = 60'000});
  TlsClient first(server_->port(), certificate_);
  first.send(request_text("GET", "/"));
  first.read_until("|end");
  // Not before the first is idle in the server's eyes, too.
  bool room = false;
  for (int i = 0; i < 1000 && !room; ++i) {
    room = TlsClient(server_->port(), certificate_).connected();
  }
  EXPECT_TRUE(room);
  EXPECT_TRUE(first.told_of_end());
}

TEST_F(Tls, AnswersTheEndOfAConnection) {
  for (const int version : {TLS1_2_VERSION, TLS1_3_VERSION}) {
    EXPECT_TRUE(TlsClient(server_->port(), certificate_, version).end_answered());
    TlsClient served(server_->port(), certificate_, version);
    served.send(request_text("GET", "/"));
    served.read_until("|end");
    EXPECT_TRUE(served.end_answered());
  }
}

TEST_F(Tls, RefusesOldVersionsPlainTextAndSilence) {
  EXPECT_FALSE(TlsClient(server_->port(), certificate_, TLS1_1_VERSION).connected());
  TestClient plain(server_->port());
  plain.send(request_text("GET", "/"));
  EXPECT_TRUE(plain.ended());
  TestClient silent(server_->port());
  EXPECT_TRUE(silent.ended(3000));
  TlsClient gone(server_->port(), certificate_);
  gone.reset();
  EXPECT_TRUE(TlsClient(server_->port(), certificate_).connected());
}

TEST_F(Tls, NamesFilesThatAreNoCertificate) {
  const auto swapped = HttpServer::listen({.tls_certificate_file = certificate_.key_file,
                                           .tls_key_file = certificate_.certificate_file},
                                          {});
  ASSERT_FALSE(swapped);
  EXPECT_EQ(swapped.error().code, Code::kInvalidArgument);
  EXPECT_NE(swapped.error().message.find(certificate_.key_file), std::string::npos);
  const auto missing = HttpServer::listen(
      {.tls_certificate_file = certificate_.certificate_file, .tls_key_file = "/nowhere/key.pem"},
      {});
  ASSERT_FALSE(missing);
  EXPECT_EQ(missing.error().code, Code::kNotFound);
  EXPECT_NE(missing.error().message.find("/nowhere/key.pem: cannot open"), std::string::npos);
}

}  // namespace
}  // namespace jige::api
