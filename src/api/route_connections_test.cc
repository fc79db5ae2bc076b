// The connections of a router to its servers: kept for further requests, few and not for long, and
// never the reason for which a request fails, or is asked more often than it may be.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <map>
#include <mutex>
#include <thread>

#include "api/route_test_support.h"
#include "api/tls_test_support.h"

namespace jige::api {
namespace {

using testing::Certificate;
using ::testing::HasSubstr;
using testing::json_of;
using testing::kAsk;
using testing::kAskStream;
using testing::PlayedUpstream;
using testing::quick_router;
using testing::request_text;
using testing::RoutedServers;
using testing::soon;
using testing::TestClient;
using testing::TestPort;
using testing::TestResponse;

constexpr const char* kConnectionPath = "/v1/completions";
constexpr std::string_view kTimeout =
    "HTTP/1.1 408 Request Timeout\r\nConnection: close\r\nContent-Length: 2\r\n\r\n{}";

int64_t server_count(RoutedServers& routed, const char* name, size_t server = 0) {
  return routed.top()["servers"][server][name].get<int64_t>();
}

RouterOptions in_turns() {
  RouterOptions options = quick_router();
  options.policy.rule = plan::RouteRule::kRoundRobin;
  options.health.backoff_s = options.health.backoff_max_s = 1000;  // who is down stays so
  return options;
}

// Answers probes and the first request of each connection well and keeps it; what it does with
// later ones is up to the test.
class KeepingUpstream {
 public:
  enum class Then {
    kGoOn,
    kHangUp,     // it ends the connection, which has brought a request
    kHalfAHead,  // so it does behind some bytes of an answer
    kDies,       // so it does, and is not there any more
    kTimesOut,   // it ends the connection by 408, as one that was unused for too long
    kRefuses,    // so it does, with the first one too
    kEndsSoon,   // it ends the connection a moment behind its first answer
    kProbesToo,  // it hangs up on probes as on requests
    kReadsHead,  // it answers without having read the body, as to the first one
  };

  KeepingUpstream(Then then, std::string head = "HTTP/1.1 200 OK\r\n")
      : then_(then), head_(std::move(head)), port_(std::make_unique<TestPort>()) {
    port_->listen();
    url_ = port_->url();
    thread_ = std::thread([this] { run(); });
  }
  ~KeepingUpstream() {
    stopping_ = true;
    thread_.join();
    for (std::thread& connection : connections_) connection.join();
  }
  const std::string& url() const { return url_; }
  int64_t asked() const { return asked_; }
  int64_t probed() const { return probed_; }
  // Takes no further connection, and goes on with those it has.
  void stop_listening() {
    deaf_ = true;
    while (!gone_) std::this_thread::yield();
  }

 private:
  void run() {
    while (!stopping_ && !dead_ && !deaf_) {
      pollfd entry{.fd = port_->fd(), .events = POLLIN, .revents = 0};
      if (poll(&entry, 1, 5) <= 0) continue;
      const int fd = accept(port_->fd(), nullptr, nullptr);
      connections_.emplace_back([this, fd] { serve(fd); });
    }
    port_ = nullptr;
    gone_ = true;
  }
  void serve(int fd) {
    std::string pending;
    for (int served = 0; answer(fd, pending, served); ++served) continue;
    close(fd);
  }
  // False where the connection is to end.
  bool answer(int fd, std::string& pending, int served) {
    size_t head = 0;
    while ((head = pending.find("\r\n\r\n")) == std::string::npos ||
           !(then_ == Then::kReadsHead || whole(pending, head))) {
      pollfd entry{.fd = fd, .events = POLLIN, .revents = 0};
      if (stopping_ || dead_) return false;
      if (poll(&entry, 1, 5) <= 0) continue;
      char buffer[4096];
      const ssize_t count = recv(fd, buffer, sizeof buffer, 0);
      if (count <= 0) return false;
      pending.append(buffer, static_cast<size_t>(count));
    }
    const std::string request = std::exchange(pending, "");
    std::string body = R"({"from":"kept"})";
    const bool probe = request.starts_with("GET ");
    if (request.starts_with("GET /v1/models")) body = R"({"data":[{"id":"tiny"}]})";
    ++(probe ? probed_ : asked_);
    if (then_ == Then::kProbesToo) return served == 0 && say(fd, body);
    if (!probe && (served > 0 || then_ == Then::kRefuses) && then_ != Then::kGoOn) {
      if (then_ == Then::kHalfAHead) send(fd, "HTTP/1", 6, MSG_NOSIGNAL);
      if (then_ == Then::kTimesOut || then_ == Then::kRefuses) {
        send(fd, kTimeout.data(), kTimeout.size(), MSG_NOSIGNAL);
      }
      if (then_ == Then::kDies) dead_ = true;
      while (then_ == Then::kDies && !gone_) std::this_thread::yield();
      return false;
    }
    say(fd, body);
    while (!probe && then_ == Then::kReadsHead && !stopping_) std::this_thread::yield();
    if (!probe && then_ == Then::kEndsSoon) {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      return false;
    }
    return true;
  }
  bool say(int fd, const std::string& body) const {
    const std::string text =
        head_ + "Content-Length: " + std::to_string(body.size()) + "\r\n\r\n" + body;
    return send(fd, text.data(), text.size(), MSG_NOSIGNAL) >= 0;
  }
  static bool whole(const std::string& request, size_t head) {
    const size_t at = request.find("Content-Length: ");
    return at > head || request.size() >= head + 4 + std::stoul(request.substr(at + 16));
  }

  const Then then_;
  const std::string head_;
  std::unique_ptr<TestPort> port_;
  std::string url_;
  std::atomic<bool> stopping_{false}, dead_{false}, deaf_{false}, gone_{false};
  std::atomic<int64_t> asked_{0}, probed_{0};
  std::thread thread_;
  std::vector<std::thread> connections_;
};

TEST(RouteConnections, AreKeptForFurtherRequests) {
  PlayedUpstream server("one");
  RoutedServers routed({server.url()});
  for (int i = 0; i < 4; ++i) {
    EXPECT_EQ(json_of(routed.post(kConnectionPath, kAsk).body)["from"], "one");
    EXPECT_EQ(routed.post(kConnectionPath, kAskStream).body, "data: one\n\ndata: [DONE]\n\n");
  }
  EXPECT_EQ(server_count(routed, "opened_total"), 1);
  EXPECT_EQ(server_count(routed, "reused_total"), 7);
  EXPECT_EQ(server_count(routed, "connections_idle"), 1);
  EXPECT_EQ(server.last().header("Connection"), "");
  const std::string metrics = routed.get("/metrics").body;
  EXPECT_THAT(metrics,
              HasSubstr("connections_total{server=\"" + server.url() + "\",kind=\"reused\"} 7\n"));
  EXPECT_THAT(metrics, HasSubstr("connections_idle{server=\"" + server.url() + "\"} 1\n"));
}

TEST(RouteConnections, OverTlsAreKeptToo) {
  const Certificate certificate;
  HttpServerOptions tls;
  tls.tls_certificate_file = certificate.certificate_file;
  tls.tls_key_file = certificate.key_file;
  PlayedUpstream server("one", {"tiny"}, tls);
  RoutedServers routed({});
  routed.router().set_servers({testing::value_of(
      HttpPeer::resolve("https" + server.url().substr(4), certificate.certificate_file))});
  ASSERT_TRUE(soon([&] { return routed.servers_up() == 1; }));
  for (int i = 0; i < 6; ++i) {
    EXPECT_EQ(json_of(routed.post(kConnectionPath, kAsk).body)["from"], "one");
    std::this_thread::sleep_for(std::chrono::milliseconds(60));  // it is looked at meanwhile
  }
  EXPECT_EQ(server_count(routed, "opened_total"), 1);
  EXPECT_EQ(server_count(routed, "reused_total"), 5);
  server.kill();
  EXPECT_TRUE(soon([&] { return server_count(routed, "connections_idle") == 0; }));
}

TEST(RouteConnections, AreFewAndNotForLong) {
  PlayedUpstream server("one");
  std::vector<std::shared_ptr<Responder>> held;
  server.answer_with([&](HttpRequest, std::shared_ptr<Responder> responder) {
    held.push_back(std::move(responder));
  });
  RouterOptions options = quick_router();
  options.idle = {.count_max = 2, .seconds = 0.5};
  RoutedServers routed({server.url()}, options);
  std::vector<TestClient> clients;
  for (int i = 0; i < 5; ++i) {
    clients.emplace_back(routed.port());
    clients.back().send(request_text("POST", kConnectionPath, kAsk));
  }
  ASSERT_TRUE(soon([&] { return server.asked() == 5; }));
  for (const auto& one : held) one->post([one] { one->respond({.body = "{}"}); });
  for (TestClient& client : clients) EXPECT_EQ(client.read_response().status, 200);
  EXPECT_EQ(server_count(routed, "connections_idle"), 2);
  EXPECT_TRUE(soon([&] { return server_count(routed, "connections_idle") == 0; }));
  held.clear();
  server.answer_with(nullptr);
  EXPECT_EQ(routed.post(kConnectionPath, kAsk).status, 200);
  EXPECT_EQ(server_count(routed, "opened_total"), 6);
}

TEST(RouteConnections, AreNotKeptWhereThatIsNotWanted) {
  PlayedUpstream server("one");
  RouterOptions options = quick_router();
  options.idle.seconds = 0;
  RoutedServers routed({server.url()}, options);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(routed.post(kConnectionPath, kAsk).status, 200);
  EXPECT_EQ(server_count(routed, "opened_total"), 3);
  for (const char* head : {"HTTP/1.0 200 OK\r\n", "HTTP/1.1 200 OK\r\nConnection: close\r\n"}) {
    KeepingUpstream server_ends(KeepingUpstream::Then::kGoOn, head);
    RoutedServers beside({server_ends.url()});
    for (int i = 0; i < 3; ++i) EXPECT_EQ(beside.post(kConnectionPath, kAsk).status, 200);
    EXPECT_EQ(server_count(beside, "opened_total"), 3) << head;
    EXPECT_EQ(server_count(beside, "connections_idle"), 0) << head;
  }
}

TEST(RouteConnections, ThatTheServerHasEndedAreNotUsed) {
  HttpServerOptions http;
  http.idle_timeout_ms = 1;  // as it looks every 100 ms
  PlayedUpstream server("one", {"tiny"}, http);
  RouterOptions options = quick_router();
  options.idle.seconds = 1000;
  RoutedServers routed({server.url()}, options);
  EXPECT_EQ(routed.post(kConnectionPath, kAsk).status, 200);
  EXPECT_TRUE(soon([&] { return server_count(routed, "connections_idle") == 0; }));
  EXPECT_EQ(routed.post(kConnectionPath, kAsk).status, 200);
  EXPECT_EQ(server_count(routed, "opened_total"), 2);
  EXPECT_EQ(server_count(routed, "stale_total"), 0);
}

// What an unused connection becomes ready for, such as its end, wakes nobody: the router looks at
// it from time to time.
TEST(RouteConnections, ThatEndUnusedDoNotKeepTheRouterBusy) {
  KeepingUpstream server(KeepingUpstream::Then::kEndsSoon);
  std::atomic<int64_t> turns{0};
  RouterOptions options = in_turns();
  options.before_turn = [&] { ++turns; };
  RoutedServers routed({server.url()}, options);
  for (int i = 0; i < 5; ++i) {
    EXPECT_EQ(routed.post(kConnectionPath, kAsk).status, 200);
    const int64_t before = turns;
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    EXPECT_LT(turns - before, 200) << i;  // it looks around fifty times a second
  }
}

// The server ends it just when a request is on its way, with or without a word about it: that is no
// fault of anybody.
TEST(RouteConnections, ThatEndUnderARequestAreReplaced) {
  for (const auto ends : {KeepingUpstream::Then::kHangUp, KeepingUpstream::Then::kTimesOut}) {
    KeepingUpstream server(ends);
    RoutedServers routed({server.url()}, in_turns());
    for (int i = 0; i < 6; ++i) {
      const TestResponse response = routed.post(kConnectionPath, i % 2 == 0 ? kAsk : kAskStream);
      EXPECT_EQ(response.status, 200) << i;
      EXPECT_EQ(json_of(response.body)["from"], "kept") << i;
    }
    EXPECT_EQ(server_count(routed, "stale_total"), 5);
    EXPECT_EQ(server_count(routed, "opened_total"), 6);
    EXPECT_EQ(server_count(routed, "failed_total"), 0);
    EXPECT_EQ(server_count(routed, "requests_total"), 6);
    EXPECT_EQ(server_count(routed, "retries_total"), 0);
    EXPECT_EQ(routed.servers_up(), 1);
  }
}

// It is about the request where the connection is a new one, and where it goes on.
TEST(RouteConnections, TimeoutsOfARequestAreItsAnswer) {
  KeepingUpstream refuses(KeepingUpstream::Then::kRefuses);
  PlayedUpstream keeps("keeps");
  keeps.answer_with([](HttpRequest, const std::shared_ptr<Responder>& responder) {
    responder->respond({.status = 408, .body = "{}"});
  });
  for (const std::string& url : {refuses.url(), keeps.url()}) {
    RoutedServers routed({url}, in_turns());
    for (int i = 0; i < 3; ++i) EXPECT_EQ(routed.post(kConnectionPath, kAsk).status, 408);
    EXPECT_EQ(server_count(routed, "stale_total"), 0);
    EXPECT_EQ(server_count(routed, "opened_total"), url == keeps.url() ? 1 : 3);
    EXPECT_EQ(server_count(routed, "failed_total"), 0);
  }
  EXPECT_EQ(refuses.asked(), 3);
  EXPECT_EQ(keeps.asked(), 3);
}

// Bytes of an answer have come: the server has had the request, and was lost with it.
TEST(RouteConnections, ThatEndBehindAByteAreALoss) {
  KeepingUpstream server(KeepingUpstream::Then::kHalfAHead);
  PlayedUpstream well("well");
  RoutedServers routed({server.url(), well.url()}, in_turns());
  std::map<std::string, int> from;
  for (int i = 0; i < 5; ++i) {
    ++from[json_of(routed.post(kConnectionPath, kAsk).body)["from"].get<std::string>()];
  }
  EXPECT_EQ(from["kept"], 1);
  EXPECT_EQ(from["well"], 4);
  EXPECT_EQ(server_count(routed, "stale_total"), 0);
  EXPECT_EQ(server_count(routed, "failed_total"), 1);
  EXPECT_EQ(server.asked(), 2);
}

// A request under which servers die takes two of them, though the connections were used before.
TEST(RouteConnections, DoNotHideThatServersDieUnderARequest) {
  KeepingUpstream one(KeepingUpstream::Then::kDies), two(KeepingUpstream::Then::kDies),
      three(KeepingUpstream::Then::kDies);
  RoutedServers routed({one.url(), two.url(), three.url()}, in_turns());
  for (int i = 0; i < 3; ++i) EXPECT_EQ(routed.post(kConnectionPath, kAsk).status, 200);
  const TestResponse lost = routed.post(kConnectionPath, kAsk);
  EXPECT_EQ(lost.status, 503);
  EXPECT_EQ(json_of(lost.body)["error"]["code"], "server_lost");
  EXPECT_EQ(one.asked() + two.asked() + three.asked(), 5);
}

// What is left of the body would stand in front of the next request.
TEST(RouteConnections, OnWhichABodyIsUnderWayAreNotKept) {
  KeepingUpstream server(KeepingUpstream::Then::kReadsHead);
  HttpServerOptions http;
  http.body_bytes_max = size_t{16} << 20;
  RoutedServers routed({server.url()}, in_turns(), {}, http);
  const std::string body = R"({"prompt":")" + std::string(size_t{14} << 20, 'x') + "\"}";
  EXPECT_EQ(routed.post(kConnectionPath, body).status, 200);
  EXPECT_EQ(server_count(routed, "connections_idle"), 0);
}

TEST(RouteConnections, GoWithTheirServer) {
  PlayedUpstream one("one"), two("two");
  RoutedServers routed({one.url(), two.url()}, in_turns());
  for (int i = 0; i < 2; ++i) EXPECT_EQ(routed.post(kConnectionPath, kAsk).status, 200);
  EXPECT_EQ(server_count(routed, "connections_idle", 0), 1);
  EXPECT_EQ(server_count(routed, "connections_idle", 1), 1);
  one.health_status = 503;  // what is not well may hang
  EXPECT_TRUE(soon([&] { return server_count(routed, "connections_idle", 0) == 0; }));
  EXPECT_EQ(server_count(routed, "connections_idle", 1), 1);
}

// A server that is down, and whose name leads elsewhere by now, is asked there.
TEST(RouteConnections, GoWhereTheirServerIs) {
  PlayedUpstream one("one"), two("two");
  RoutedServers routed({one.url()});
  HttpPeer moved = testing::value_of(HttpPeer::resolve(one.url()));
  moved.address = testing::value_of(HttpPeer::resolve(two.url())).address;
  routed.router().set_servers({moved});
  EXPECT_EQ(json_of(routed.post(kConnectionPath, kAsk).body)["from"], "one") << "it is well";
  one.kill();
  ASSERT_TRUE(soon([&] { return routed.servers_up() == 0; }));
  routed.router().set_servers({moved});
  ASSERT_TRUE(soon([&] { return routed.servers_up() == 1; }));
  EXPECT_EQ(json_of(routed.post(kConnectionPath, kAsk).body)["from"], "two");
  EXPECT_EQ(routed.top()["servers"].size(), 1U);
  EXPECT_EQ(routed.top()["servers"][0]["address"], one.url());
}

TEST(RouteConnections, GoToAnAddressOfAnotherKind) {
  const auto on_ipv6 = HttpServer::listen({.host = "::1"}, nullptr);
  if (!on_ipv6) GTEST_SKIP() << "there is no IPv6 here: " << on_ipv6.error().message;
  PlayedUpstream one("one"), two("two", {"tiny"}, {.host = "::1"});
  RoutedServers routed({one.url()});
  one.kill();
  ASSERT_TRUE(soon([&] { return routed.servers_up() == 0; }));
  HttpPeer moved = testing::value_of(HttpPeer::resolve(two.url_of("[::1]")));
  moved.host = testing::value_of(HttpPeer::resolve(one.url())).host;
  routed.router().set_servers({moved});
  ASSERT_TRUE(soon([&] { return routed.servers_up() == 1; })) << routed.top();
  EXPECT_EQ(json_of(routed.post(kConnectionPath, kAsk).body)["from"], "two");
}

TEST(RouteConnections, OfProbesStay) {
  KeepingUpstream server(KeepingUpstream::Then::kGoOn);
  RoutedServers routed({server.url()});
  ASSERT_TRUE(soon([&] { return server.probed() >= 20; }));
  EXPECT_EQ(server_count(routed, "opened_probe_total"), 1);
  EXPECT_EQ(server_count(routed, "opened_total"), 0);
  RouterOptions seldom = quick_router();
  seldom.idle.seconds = seldom.health.probe_s / 2;  // it would be unused for too long
  RoutedServers beside({server.url()}, seldom);
  const int64_t before = server_count(beside, "opened_probe_total");
  EXPECT_TRUE(soon([&] { return server_count(beside, "opened_probe_total") >= before + 10; }));
}

TEST(RouteConnections, OfProbesTellThatAServerIsGone) {
  PlayedUpstream server("one");
  RouterOptions options = quick_router();
  options.health.probe_s = 1000;
  options.idle.seconds = 2000;
  RoutedServers routed({server.url()}, options);
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  EXPECT_EQ(routed.servers_up(), 1);
  server.kill();
  EXPECT_TRUE(soon([&] { return routed.servers_up() == 0; }));
}

// A server that ends connections as it likes is well for all that.
TEST(RouteConnections, OfProbesThatHaveEndedAreReplaced) {
  KeepingUpstream server(KeepingUpstream::Then::kProbesToo);
  RouterOptions options = in_turns();
  options.health.probe_failures_max = 1;
  RoutedServers routed({server.url()}, options);
  ASSERT_TRUE(soon([&] { return server.probed() >= 40; }));
  EXPECT_EQ(routed.servers_up(), 1);
  EXPECT_GE(server_count(routed, "opened_probe_total"), 10);
}

TEST(RouteConnections, OfProbesAreNewToAServerThatIsDown) {
  KeepingUpstream server(KeepingUpstream::Then::kGoOn);
  RouterOptions options = quick_router();
  options.rest_wait_s = 0.1;
  RoutedServers routed({server.url()}, options);
  server.stop_listening();
  EXPECT_EQ(routed.post(kConnectionPath, kAsk).status, 503);
  for (int i = 0; i < 20; ++i) {
    EXPECT_EQ(routed.servers_up(), 0) << i;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
}

}  // namespace
}  // namespace jige::api
