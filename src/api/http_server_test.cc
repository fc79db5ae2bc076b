#include "api/http_server.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <mutex>
#include <thread>
#include <vector>

#include "api/http_server_test_support.h"
#include "api/test_client.h"
#include "base/rng.h"
#include "base/test_fuzz_rounds.h"

namespace jige::api {
namespace {

using testing::fetch;
using ::testing::HasSubstr;
using testing::request_text;
using testing::TestClient;
using testing::TestResponse;

TEST_F(HttpServerTest, AnswersRequests) {
  start();
  EXPECT_GT(port_, 0);
  EXPECT_EQ(server_->address(), "http://127.0.0.1:" + std::to_string(port_));
  const TestResponse response = fetch(port_, "POST", "/echo", "hello");
  EXPECT_EQ(response.status, 200);
  EXPECT_EQ(response.body, "POSThello");
  EXPECT_EQ(response.field("Content-Type"), "text/plain");
  EXPECT_EQ(server_->stats().requests_total, 1);
}

TEST_F(HttpServerTest, TakesTargetsInAbsoluteForm) {
  start();
  EXPECT_EQ(fetch(port_, "POST", "http://some.host:80/echo?x", "hello").body, "POSThello");
}

TEST_F(HttpServerTest, KeepsConnectionsAndTheOrderOfPipelinedRequests) {
  start();
  TestClient client(port_);
  std::string all;
  for (int i = 0; i < 20; ++i) {
    all += request_text("POST", i % 2 == 0 ? "/later" : "/echo", std::to_string(i));
  }
  client.send(all);
  for (int i = 0; i < 20; ++i) {
    const TestResponse response = client.read_response();
    EXPECT_EQ(response.status, 200);
    EXPECT_EQ(response.body, (i % 2 == 0 ? "" : "POST") + std::to_string(i));
  }
  EXPECT_EQ(server_->stats().connections_total, 1);
}

TEST_F(HttpServerTest, TakesRequestsByteByByte) {
  start();
  TestClient client(port_);
  for (const char c : request_text("POST", "/echo", "slow")) client.send(std::string(1, c));
  EXPECT_EQ(client.read_response().body, "POSTslow");
}

TEST_F(HttpServerTest, TakesBytesThatArriveWhileAnswersAreMade) {
  start();
  TestClient client(port_);
  std::string all;
  constexpr int kRequests = 12;
  for (int i = 0; i < kRequests; ++i) {
    all += request_text("POST", i % 3 == 0 ? "/later" : "/echo", std::to_string(i));
  }
  Rng rng(1);
  while (!all.empty()) {
    const size_t size = std::min<size_t>(1 + rng.below(60), all.size());
    client.send(all.substr(0, size));
    all.erase(0, size);
    std::this_thread::sleep_for(std::chrono::milliseconds(rng.below(3)));
  }
  for (int i = 0; i < kRequests; ++i) {
    EXPECT_EQ(client.read_response().body, (i % 3 == 0 ? "" : "POST") + std::to_string(i));
  }
}

TEST_F(HttpServerTest, StreamsInChunks) {
  start();
  TestClient client(port_);
  client.send(request_text("GET", "/stream"));
  const TestResponse response = client.read_response();
  EXPECT_EQ(response.field("Transfer-Encoding"), "chunked");
  EXPECT_EQ(response.body, "one two three");
  client.send(request_text("GET", "/echo"));  // the connection goes on
  EXPECT_EQ(client.read_response().body, "GET");
}

TEST_F(HttpServerTest, BreaksTheSilenceOfEventsWhileTheServerIsAlive) {
  std::atomic<bool> alive{true};
  start({.event_pause_ms = 50, .alive = [&] { return alive.load(); }});
  TestClient events(port_), text(port_);
  for (const auto& [client, path] : {std::pair(&events, "/events"), std::pair(&text, "/text")}) {
    client->send(request_text("GET", path));
    EXPECT_NE(client->read_until("data: 1\n\n"), "");
  }
  for (int i = 0; i < 3; ++i) EXPECT_NE(events.read_until("\r\n:\n\n\r\n"), "");
  EXPECT_EQ(text.read_until(":", 250), "") << "these bytes are not ours to add to";
  alive = false;
  while (!events.read_until(":", 150).empty()) continue;
  EXPECT_EQ(events.read_until(":", 250), "") << "who waits shall know that nothing comes";
  for (const auto& held : held_) {
    held->post([held] {
      held->write("data: 2\n\n");
      held->end();
    });
  }
  EXPECT_NE(events.read_until("data: 2\n\n"), "");
  EXPECT_NE(events.read_until("0\r\n\r\n"), "");
  alive = true;
  std::this_thread::sleep_for(std::chrono::milliseconds(250));
  events.send(request_text("GET", "/echo"));
  EXPECT_EQ(events.read_response().body, "GET") << "and nothing behind the end";
}

TEST_F(HttpServerTest, LetsAStreamBeginThatIsSilentForLong) {
  std::atomic<bool> alive{false};
  start({.event_pause_ms = 50, .alive = [&] { return alive.load(); }});
  TestClient waits(port_), says_nothing(port_), answered(port_);
  waits.send(request_text("GET", "/waits"));
  says_nothing.send(request_text("GET", "/hold"));
  ASSERT_TRUE(soon([&] { return held_count_ == 2; }));
  answered.send(request_text("GET", "/waits"));
  ASSERT_TRUE(soon([&] { return held_count_ == 3; }));
  EXPECT_EQ(waits.read_until("HTTP", 250), "") << "who waits shall know that nothing comes";
  held_.back()->post([&] { held_.back()->respond({.status = 429}); });
  EXPECT_EQ(answered.read_response().status, 429) << "nothing was said yet";
  alive = true;
  const std::string head = waits.read_until("\r\n\r\n");
  EXPECT_TRUE(head.starts_with("HTTP/1.1 200")) << head;
  for (int i = 0; i < 3; ++i) EXPECT_NE(waits.read_until("3\r\n:\n\n\r\n"), "");
  EXPECT_EQ(says_nothing.read_until("HTTP", 250), "") << "it may become anything";
  answered.send(request_text("GET", "/echo"));
  EXPECT_EQ(answered.read_response().body, "GET") << "and nothing behind the end";
  EXPECT_EQ(answered.read_until("HTTP", 250), "");
}

TEST_F(HttpServerTest, StreamsToOldClientsUntilTheConnectionEnds) {
  start();
  TestClient client(port_);
  client.send("GET /stream HTTP/1.0\r\n\r\n");
  const TestResponse response = client.read_response();
  EXPECT_EQ(response.field("Transfer-Encoding"), "");
  EXPECT_EQ(response.body, "one two three");
  EXPECT_TRUE(client.ended());
}

TEST_F(HttpServerTest, AnswersHeadWithoutABody) {
  start();
  TestClient client(port_);
  client.send(request_text("HEAD", "/echo"));
  const TestResponse response = client.read_response(true);
  EXPECT_EQ(response.status, 200);
  EXPECT_EQ(response.field("Content-Length"), "3");
  client.send(request_text("GET", "/echo"));
  EXPECT_EQ(client.read_response().body, "GET");
}

TEST_F(HttpServerTest, TakesChunkedBodiesAndExpectContinue) {
  start();
  TestClient client(port_);
  client.send(
      "POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
      "3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n");
  EXPECT_EQ(client.read_response().body, "POSTabcde");
  client.send(
      "POST /echo HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n");
  EXPECT_EQ(client.read_until("\r\n\r\n"), "HTTP/1.1 100 Continue\r\n\r\n");
  client.send("ok");
  EXPECT_EQ(client.read_response().body, "POSTok");
}

TEST_F(HttpServerTest, PassesOverEmptyLinesInFrontOfRequests) {
  start();
  TestClient client(port_);
  const std::string request = request_text("POST", "/echo", "a");
  client.send("\r\n\r\n" + request + "\r\n" + request + "\r");
  EXPECT_EQ(client.read_response().body, "POSTa");
  EXPECT_EQ(client.read_response().body, "POSTa");
  client.send("\n" + request);
  EXPECT_EQ(client.read_response().body, "POSTa");
}

TEST_F(HttpServerTest, RefusesCodingsOfTransferThatItDoesNotKnow) {
  start();
  for (const std::string coding : {"gzip, chunked", "identity"}) {
    TestClient client(port_);
    client.send("POST /echo HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: " + coding +
                "\r\n\r\n0\r\n\r\n");
    EXPECT_EQ(client.read_response().status, 501) << coding;
  }
  EXPECT_EQ(server_->stats().requests_total, 0);
}

TEST_F(HttpServerTest, TakesManyChunksAtOnceAndTheRequestBehindThem) {
  start();
  TestClient client(port_);
  std::string all = "POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n";
  for (int i = 0; i < 3000; ++i) all += "20;note=1\r\n" + std::string(32, 'c') + "\r\n";
  client.send(all + "0\r\nX-Trailer: y\r\n\r\n" + request_text("GET", "/echo"));
  EXPECT_EQ(client.read_response().body, "POST" + std::string(96'000, 'c'));
  EXPECT_EQ(client.read_response().body, "GET");
}

TEST_F(HttpServerTest, ClosesWhereTheClientAsksForIt) {
  start();
  TestClient client(port_);
  client.send(request_text("GET", "/echo", "", "Connection: close\r\n"));
  const TestResponse response = client.read_response();
  EXPECT_EQ(response.body, "GET");
  EXPECT_EQ(response.field("Connection"), "close");
  EXPECT_TRUE(client.ended());
}

TEST_F(HttpServerTest, RefusesMalformedRequests) {
  start();
  const std::vector<std::string> bad = {
      "hello\r\n\r\n",
      "GET  HTTP/1.1\r\n\r\n",
      "GET /echo HTTP/9.9\r\n\r\n",
      "GET /echo HTTP/1.1\r\nNo colon\r\n\r\n",
      "GET /echo HTTP/1.1\r\nContent-Length: -5\r\n\r\n",
      "GET /echo HTTP/1.1\r\nContent-Length: 99999999999999999999999\r\n\r\n",
      "POST /echo HTTP/1.1\r\nContent-Length: 3\r\nContent-Length: 5\r\n\r\nabcde",
      "POST /echo HTTP/1.1\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
      "POST /echo HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n\r\n",
      std::string("GET /echo HTTP/1.1\r\nX: a\0b\r\n\r\n", 31),
      "GET /a%2 HTTP/1.1\r\nHost: x\r\n\r\n",
      "GET http:///echo HTTP/1.1\r\nHost: x\r\n\r\n",
      "GET /echo HTTP/1.1\r\n\r\n",
      "GET /echo HTTP/1.1\r\nHost: x\r\nHost: y\r\n\r\n",
      std::string(64, '\0'),
      "\x16\x03\x01\x02\x03 TLS where none is spoken\r\n\r\n",
  };
  for (const std::string& text : bad) {
    TestClient client(port_);
    client.send(text);
    const TestResponse response = client.read_response();
    EXPECT_EQ(response.status, 400) << text;
    EXPECT_THAT(response.body, HasSubstr(R"({"error":{"message":)")) << text;
    EXPECT_TRUE(client.ended()) << text;
  }
}

TEST_F(HttpServerTest, AnswersRequestsThatNobodyAnswers) {
  start();
  EXPECT_EQ(fetch(port_, "GET", "/drop").status, 500);
}

TEST_F(HttpServerTest, StopsWhileRequestsAreUnderWay) {
  start();
  TestClient held_client(port_), idle(port_);
  held_client.send(request_text("GET", "/hold"));
  ASSERT_TRUE(testing::soon([&] { return held() == 1; }));
  server_->stop(100);
  EXPECT_TRUE(held_client.ended());
  EXPECT_TRUE(idle.ended());
  EXPECT_EQ(gone_, 1);
  EXPECT_FALSE(TestClient(port_).connected());
  // The holder of a request may outlive the server.
  const std::lock_guard lock(mutex_);
  held_.front()->post([] { FAIL() << "ran after the stop"; });
  held_.front()->respond({});
}

TEST_F(HttpServerTest, NamesWhatItCannotListenOn) {
  start();
  const HttpHandler none = [](HttpRequest, std::shared_ptr<Responder>) {};
  const auto taken = HttpServer::listen({.port = port_}, none);
  ASSERT_FALSE(taken);
  EXPECT_EQ(taken.error().code, Code::kUnavailable);
  EXPECT_THAT(taken.error().message, HasSubstr("--port"));
  const auto nowhere = HttpServer::listen({.host = "no such host"}, none);
  ASSERT_FALSE(nowhere);
  EXPECT_EQ(nowhere.error().code, Code::kInvalidArgument);
  // Of the block for documentation, which no machine has.
  const auto foreign = HttpServer::listen({.host = "192.0.2.1"}, none);
  ASSERT_FALSE(foreign);
  EXPECT_EQ(foreign.error().code, Code::kInvalidArgument) << foreign.error().message;
  const auto half = HttpServer::listen({.tls_certificate_file = "a.pem"}, none);
  EXPECT_EQ(half.error().code, Code::kInvalidArgument);
  const auto absent =
      HttpServer::listen({.tls_certificate_file = "/no/a.pem", .tls_key_file = "/no/b.pem"}, none);
  ASSERT_FALSE(absent);
  EXPECT_THAT(absent.error().message, HasSubstr("/no/a.pem"));
}

// Whatever bytes come, the server answers the next client.
TEST_F(HttpServerTest, SurvivesMutatedRequests) {
  start({.body_bytes_max = 4096, .request_timeout_ms = 1000});
  const std::string good =
      request_text("POST", "/echo?a=%20", R"({"prompt":"x"})", "Accept: */*\r\n") +
      "POST /later HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n";
  for (uint64_t seed = 0; seed < fuzz_rounds(300); ++seed) {
    Rng rng(derive_key(seed, "http mutation"));
    std::string text = good;
    const uint64_t edits = 1 + rng.below(6);
    for (uint64_t i = 0; i < edits; ++i) {
      const size_t at = rng.below(text.size());
      switch (rng.below(4)) {
        case 0:
          text[at] = static_cast<char>(rng.below(256));
          break;
        case 1:
          text.erase(at, 1 + rng.below(8));
          break;
        case 2:
          text.insert(at, text.substr(rng.below(text.size()), rng.below(32)));
          break;
        default:
          text.insert(at, 1, "\r\n\0:%0 "[rng.below(7)]);
      }
    }
    TestClient client(port_);
    client.send(text);
    if (rng.below(2) == 0) {
      client.reset();
    } else {
      client.shutdown_write();
      client.read_until("", 2000);
    }
  }
  EXPECT_EQ(fetch(port_, "GET", "/echo").status, 200);
  EXPECT_TRUE(testing::soon([&] { return server_->stats().connections_open == 0; }));
}

}  // namespace
}  // namespace jige::api
