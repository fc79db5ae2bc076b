// HTTPS of the client: which certificates it accepts, and that nothing else passes.
#include "api/http_tls.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>

#include "api/route_test_support.h"
#include "api/tls_test_support.h"
#include "base/file.h"
#include "base/rng.h"
#include "base/test_fuzz_rounds.h"

namespace jige::api {
namespace {

using testing::Certificate;
using ::testing::HasSubstr;
using testing::json_of;
using testing::kAsk;
using testing::kAskStream;
using ::testing::Not;
using testing::PlayedUpstream;
using testing::RoutedServers;
using testing::soon;
using testing::TestPort;
using testing::value_of;

HttpServerOptions with_certificate(const Certificate& certificate) {
  HttpServerOptions options;
  options.tls_certificate_file = certificate.certificate_file;
  options.tls_key_file = certificate.key_file;
  return options;
}

// Says back what it is sent.
std::unique_ptr<HttpServer> echo_server(const Certificate& certificate) {
  return value_of(
      HttpServer::listen(with_certificate(certificate),
                         [](HttpRequest request, const std::shared_ptr<Responder>& responder) {
                           responder->respond({.body = std::move(request.body)});
                         }));
}

std::string https(const HttpServer& server, const std::string& host = "127.0.0.1") {
  return "https://" + host + ":" + std::to_string(server.port());
}

std::string https_answer(const std::string& url, const std::string& ca_file,
                         const std::string& body = "hello") {
  const auto peer = HttpPeer::resolve(url, ca_file);
  if (!peer) return "error: " + peer.error().message;
  const auto answer = fetch(*peer, {.method = "POST", .path = "/", .body = body}, 10);
  return answer ? answer->body : "error: " + answer.error().message;
}

TEST(HttpsClient, AsksAServerWhoseCertificateIsAccepted) {
  const Certificate certificate;
  const auto server = echo_server(certificate);
  EXPECT_EQ(https_answer(https(*server), certificate.certificate_file), "hello");
  std::string large(5 << 20, 'x');
  for (size_t i = 0; i < large.size(); i += 997) large[i] = static_cast<char>('a' + i % 26);
  large.resize((4 << 20) - 7);
  EXPECT_TRUE(https_answer(https(*server), certificate.certificate_file, large) == large);
  EXPECT_EQ(HttpPeer::resolve(https(*server))->url(), https(*server));
  EXPECT_EQ(HttpPeer::resolve("https://127.0.0.1")->host, "127.0.0.1:443");
}

TEST(HttpsClient, AcceptsNamesAndNothingElse) {
  const Certificate by_name({.names = "DNS:localhost"});
  const auto server = echo_server(by_name);
  EXPECT_EQ(https_answer(https(*server, "localhost"), by_name.certificate_file), "hello");
  EXPECT_THAT(https_answer(https(*server), by_name.certificate_file),
              HasSubstr("IP address mismatch"));
  const Certificate other({.names = "DNS:localhost.example,IP:127.0.0.2"});
  const auto stranger = echo_server(other);
  EXPECT_THAT(https_answer(https(*stranger, "localhost"), other.certificate_file),
              HasSubstr("certificate is not accepted: hostname mismatch"));
  EXPECT_THAT(https_answer(https(*stranger), other.certificate_file),
              HasSubstr("address mismatch"));
  const Certificate nobody({.names = ""});
  EXPECT_THAT(https_answer(https(*echo_server(nobody)), nobody.certificate_file),
              HasSubstr("address mismatch"));
}

TEST(HttpsClient, RefusesWhoIsNotVouchedForAndWhatHasEnded) {
  const Certificate certificate, another, ended({.ends_in_s = -60});
  const auto server = echo_server(certificate);
  for (const std::string& ca_file : {std::string(), another.certificate_file}) {
    const std::string answer = https_answer(https(*server), ca_file);
    EXPECT_THAT(answer, HasSubstr("its certificate is not accepted: self"));
    EXPECT_THAT(answer, HasSubstr("--server-ca")) << "the remedy";
    EXPECT_THAT(answer, HasSubstr(std::to_string(server->port()))) << "whose it is";
  }
  EXPECT_THAT(https_answer(https(*echo_server(ended)), ended.certificate_file),
              HasSubstr("certificate has expired"));
}

TEST(HttpsClient, NamesFilesThatHaveNoAuthorities) {
  EXPECT_THAT(https_answer("https://127.0.0.1:1", "/nowhere/ca.pem"), HasSubstr("/nowhere/ca.pem"));
  const Certificate certificate;
  const std::string answer = https_answer("https://127.0.0.1:1", certificate.key_file);
  EXPECT_THAT(answer, HasSubstr(certificate.key_file + ": cannot be used as authorities"));
}

// Says these bytes to whoever connects, whatever it is told.
class Talker {
 public:
  explicit Talker(std::string bytes) : bytes_(std::move(bytes)) {
    port_.listen();
    thread_ = std::thread([this] {
      const int fd = accept(port_.fd(), nullptr, nullptr);
      send(fd, bytes_.data(), bytes_.size(), MSG_NOSIGNAL);
      shutdown(fd, SHUT_WR);
      char buffer[4096];
      while (recv(fd, buffer, sizeof buffer, 0) > 0) {
      }
      close(fd);
    });
  }
  ~Talker() { thread_.join(); }
  std::string url() const { return "https" + port_.url().substr(4); }

 private:
  TestPort port_;
  const std::string bytes_;
  std::thread thread_;
};

// What is no TLS: an error, never an answer.
TEST(HttpsClient, TakesAnyBytesOfAServer) {
  const Certificate certificate;  // reading the system's for every server would take long
  const auto ask = [&](const std::string& bytes) {
    const Talker server(bytes);
    const std::string answer = https_answer(server.url(), certificate.certificate_file);
    EXPECT_THAT(answer, ::testing::StartsWith("error: "));
    EXPECT_THAT(answer, Not(HasSubstr("no answer within")));
    return answer;
  };
  EXPECT_THAT(ask("HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n"),
              HasSubstr("no TLS there: wrong version number"));
  ask("");
  for (uint64_t seed = 0; seed < fuzz_rounds(60); ++seed) {
    Rng rng(derive_key(seed, "tls bytes"));
    std::string bytes(rng.below(200), '\0');
    for (char& one : bytes) one = static_cast<char>(rng.below(256));
    // A record of a handshake, of the length that it says.
    if (seed % 2 == 0) {
      bytes.insert(0, std::string("\x16\x03\x03\0", 4) + static_cast<char>(bytes.size()));
    }
    ask(bytes);
  }
}

// It takes the connection and does not show who it is.
TEST(HttpsClient, IsNotConnectedBeforeTheServerHasShownWhoItIs) {
  TestPort port;
  port.listen();
  const auto peer = HttpPeer::resolve("https" + port.url().substr(4));
  ASSERT_TRUE(peer);
  auto call = HttpCall::start(*peer, {});
  ASSERT_TRUE(call);
  for (int i = 0; i < 10; ++i) {
    ASSERT_TRUE(call->advance());
    EXPECT_FALSE(call->connected());
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  EXPECT_EQ(call->wanted_events(), POLLIN) << "it is the server's turn";
}

// A body up to the end of the connection, which somebody on the way may have ended.
TEST(HttpsClient, DoesNotTakeACutForAnEnd) {
  const Certificate certificate;
  std::shared_ptr<Responder> held;
  auto server = value_of(HttpServer::listen(with_certificate(certificate),
                                            [&](HttpRequest, std::shared_ptr<Responder> responder) {
                                              held = std::move(responder);
                                              held->begin({});
                                              held->write("some of it");
                                            }));
  const auto peer = HttpPeer::resolve(https(*server), certificate.certificate_file);
  ASSERT_TRUE(peer);
  auto call = HttpCall::start(*peer, {});
  ASSERT_TRUE(call);
  const auto moved = [&] { return !call->advance() || call->response().body_bytes() > 0; };
  ASSERT_TRUE(soon(moved));
  EXPECT_TRUE(call->connected());
  held = nullptr;  // dropped
  EXPECT_TRUE(soon([&] { return !call->advance(); }));
  EXPECT_FALSE(call->response().complete());
}

TEST(HttpsClient, HoldsWhatIsNotTakenOut) {
  const Certificate certificate;
  const auto server = echo_server(certificate);
  const auto peer = HttpPeer::resolve(https(*server), certificate.certificate_file);
  const std::string body(3 << 20, 'y');
  auto call = HttpCall::start(*peer, {.method = "POST", .path = "/", .body = body});
  ASSERT_TRUE(call);
  call->hold_body_at(50'000);
  std::string all;
  // Moved only when the descriptor is ready, as the router does: nothing may hide from it.
  while (!call->response().complete()) {
    pollfd entry{.fd = call->fd(), .events = call->wanted_events(), .revents = 0};
    ASSERT_GT(poll(&entry, 1, 10'000), 0) << all.size();
    ASSERT_TRUE(call->advance());
    ASSERT_LE(call->response().body_bytes(), 50'000 + (size_t{64} << 10));
    all += call->response().take_body();
  }
  EXPECT_TRUE(all == body);
}

class RoutedByTls {
 public:
  RoutedByTls(const std::vector<std::string>& urls, const std::string& ca_file) : routed_({}) {
    std::vector<HttpPeer> peers;
    for (const std::string& url : urls) peers.push_back(value_of(HttpPeer::resolve(url, ca_file)));
    routed_.router().set_servers(std::move(peers));
  }
  RoutedServers& operator*() { return routed_; }
  RoutedServers* operator->() { return &routed_; }

 private:
  RoutedServers routed_;
};

std::string https_of(const PlayedUpstream& server) { return "https" + server.url().substr(4); }

TEST(RouterTls, AsksServersOverTls) {
  const Certificate certificate;
  PlayedUpstream one("one", {"tiny"}, with_certificate(certificate));
  PlayedUpstream plain("plain");
  std::string all;
  for (int i = 0; i < 3000; ++i)
    all += "data: " + std::to_string(i) + std::string(300, 'x') + "\n\n";
  one.answer_with([&](HttpRequest request, const std::shared_ptr<Responder>& responder) {
    if (request.body == kAsk) return responder->respond({.body = "{\"from\":\"one\"}"});
    responder->respond({.content_type = "text/event-stream", .body = all});
  });
  RoutedByTls routed({https_of(one)}, certificate.certificate_file);
  ASSERT_TRUE(soon([&] { return routed->servers_up() == 1; })) << routed->top();
  EXPECT_EQ(json_of(routed->post("/v1/completions", kAsk).body)["from"], "one");
  EXPECT_EQ(routed->post("/v1/completions", kAskStream).body, all);
  EXPECT_EQ(routed->top()["servers"][0]["address"], https_of(one));
  EXPECT_THAT(routed->get("/metrics").body, HasSubstr("server_up{server=\"" + https_of(one)));
  RoutedByTls both({https_of(one), plain.url()}, certificate.certificate_file);
  EXPECT_TRUE(soon([&] { return both->servers_up() == 2; })) << both->top();
  RoutedByTls twice({https_of(one), one.url()}, certificate.certificate_file);
  EXPECT_TRUE(soon([&] { return twice->top()["servers"].size() == 2; })) << "with and without TLS";
}

// It gets nothing, and whoever looks is told whose certificate it is and what is wrong with it.
TEST(RouterTls, SendsNothingToAServerThatIsNotAccepted) {
  const Certificate certificate, another;
  PlayedUpstream stranger("stranger", {"tiny"}, with_certificate(certificate));
  PlayedUpstream well("well");
  RoutedByTls routed({https_of(stranger), well.url()}, another.certificate_file);
  ASSERT_TRUE(soon([&] { return routed->servers_up() == 1; }));
  const auto trouble = [&] { return routed->top()["servers"][0]["trouble"].get<std::string>(); };
  EXPECT_TRUE(soon([&] { return trouble().find("certificate") != std::string::npos; }));
  EXPECT_THAT(trouble(), HasSubstr("its certificate is not accepted: self"));
  for (int i = 0; i < 4; ++i) {
    EXPECT_EQ(json_of(routed->post("/v1/completions", kAsk).body)["from"], "well");
  }
  EXPECT_EQ(stranger.asked(), 0);
  EXPECT_EQ(routed->top()["servers"][0]["state"], "down");
}

}  // namespace
}  // namespace jige::api
