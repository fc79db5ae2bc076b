// What HttpServer bounds: sizes, times, connections, and what waits for clients that do not read.
#include <gmock/gmock.h>

#include <thread>
#include <vector>

#include "api/http_server_test_support.h"
#include "api/test_client.h"

namespace jige::api {
namespace {

using testing::fetch;
using ::testing::HasSubstr;
using testing::request_text;
using testing::TestClient;
using testing::TestResponse;

TEST_F(HttpServerTest, RefusesWhatIsTooLarge) {
  start({.header_bytes_max = 1000, .body_bytes_max = 100});
  EXPECT_EQ(fetch(port_, "POST", "/echo", std::string(101, 'x')).status, 413);
  EXPECT_EQ(fetch(port_, "POST", "/echo", std::string(100, 'x')).status, 200);
  const TestResponse header =
      fetch(port_, "GET", "/echo", "", "X: " + std::string(1000, 'x') + "\r\n");
  EXPECT_EQ(header.status, 431);
  EXPECT_THAT(header.body, HasSubstr("the header has more than 1000 bytes"));
  TestClient endless(port_);
  endless.send("POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n");
  for (int i = 0; i < 20 && endless.send("20\r\n" + std::string(32, 'y') + "\r\n"); ++i) {
  }
  const TestResponse refused = endless.read_response();
  EXPECT_EQ(refused.status, 413);
  EXPECT_THAT(refused.body, HasSubstr("the body has more than 100 bytes"));
  EXPECT_THAT(refused.body, HasSubstr(R"("type":"invalid_request_error")"));
  EXPECT_TRUE(endless.ended());
  const TestResponse messages =
      fetch(port_, "POST", "/v1/messages?beta=true", std::string(101, 'x'));
  EXPECT_EQ(messages.status, 413);
  EXPECT_THAT(messages.body, HasSubstr(R"({"type":"error","error":{)"));
  EXPECT_THAT(messages.body, HasSubstr("request_too_large"));
}

TEST_F(HttpServerTest, RefusesChunksWhoseLinesDoNotEnd) {
  start();
  for (const char* begin : {"5;", "0\r\nX: "}) {
    TestClient client(port_);
    client.send("POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n");
    client.send(begin + std::string(100'000, 'x'));
    const int status = client.read_response().status;
    EXPECT_TRUE(status == 431 || status == 400) << begin << status;
    EXPECT_TRUE(client.ended()) << begin;
  }
}

TEST_F(HttpServerTest, BoundsTheBodiesOfAllConnectionsTogether) {
  start({.body_bytes_max = 1000, .bodies_bytes_max = 1500});
  TestClient first(port_), second(port_);
  const std::string head = "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n";
  first.send(head + std::string(900, 'a'));
  EXPECT_TRUE(testing::soon([&] { return server_->stats().connections_open == 2; }));
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  second.send(head + std::string(900, 'b'));
  EXPECT_EQ(second.read_response().status, 503);
  first.send(std::string(100, 'a'));
  EXPECT_EQ(first.read_response().status, 200);
  // Both have given their share back.
  EXPECT_EQ(fetch(port_, "POST", "/echo", std::string(1000, 'c')).status, 200);
}

TEST_F(HttpServerTest, EndsRequestsThatArriveTooSlowlyAndIdleConnections) {
  start({.request_timeout_ms = 150, .idle_timeout_ms = 150});
  TestClient slow(port_);
  slow.send("POST /echo HTTP/1.1\r\nContent-Length: 10\r\n\r\nabc");
  EXPECT_EQ(slow.read_response().status, 408);
  slow.close();
  TestClient idle(port_);
  EXPECT_TRUE(idle.ended(3000));
  TestClient used(port_);
  used.send(request_text("GET", "/echo"));
  EXPECT_EQ(used.read_response().status, 200);
  EXPECT_TRUE(used.ended(3000));
  EXPECT_TRUE(testing::soon([&] { return server_->stats().connections_open == 0; }));
}

TEST_F(HttpServerTest, NoticesClientsThatGo) {
  start();
  TestClient closed(port_), half_closed(port_), reset(port_);
  for (TestClient* client : {&closed, &half_closed, &reset}) {
    client->send(request_text("GET", "/hold"));
  }
  ASSERT_TRUE(testing::soon([&] { return held() == 3; }));
  EXPECT_EQ(gone_, 0);
  closed.close();
  EXPECT_TRUE(testing::soon([&] { return gone_ == 1; }));
  half_closed.shutdown_write();
  EXPECT_TRUE(testing::soon([&] { return gone_ == 2; }));
  reset.reset();
  EXPECT_TRUE(testing::soon([&] { return gone_ == 3; }));
  EXPECT_TRUE(testing::soon([&] { return server_->stats().connections_open == 0; }));
  EXPECT_EQ(fetch(port_, "GET", "/echo").status, 200);
}

TEST_F(HttpServerTest, GivesUpClientsThatDoNotRead) {
  start({.output_bytes_max = 100'000});
  TestClient client(port_, 4096);
  client.send(request_text("GET", "/flood"));
  EXPECT_TRUE(testing::soon([&] { return server_->stats().slow_readers_dropped == 1; }));
  EXPECT_GE(written_, 90);
  EXPECT_TRUE(testing::soon([&] { return gone_ == 1; }));
  EXPECT_EQ(fetch(port_, "GET", "/echo").status, 200);
}

TEST_F(HttpServerTest, EndsWritesThatMakeNoProgress) {
  start({.output_bytes_max = size_t{64} << 20, .write_timeout_ms = 200});
  TestClient client(port_, 4096);
  client.send(request_text("POST", "/echo", std::string(size_t{8} << 20, 'x')));
  EXPECT_TRUE(testing::soon([&] { return server_->stats().requests_total == 1; }));
  EXPECT_TRUE(testing::soon([&] { return server_->stats().connections_open == 0; }));
}

TEST_F(HttpServerTest, ServesBesideManyIdleConnections) {
  start();
  std::vector<TestClient> idle;
  for (int i = 0; i < 200; ++i) idle.emplace_back(port_);
  EXPECT_TRUE(testing::soon([&] { return server_->stats().connections_open == 200; }));
  EXPECT_EQ(fetch(port_, "GET", "/echo").status, 200);
  for (size_t i = 0; i < idle.size(); i += 2) idle[i].reset();
  idle[1].send(request_text("GET", "/echo"));
  EXPECT_EQ(idle[1].read_response().status, 200);
  EXPECT_TRUE(testing::soon([&] { return server_->stats().connections_open == 100; }));
}

TEST_F(HttpServerTest, RefusesConnectionsOverTheCap) {
  start({.connections_max = 2});
  TestClient one(port_), two(port_);
  ASSERT_TRUE(testing::soon([&] { return server_->stats().connections_open == 2; }));
  TestClient three(port_);
  const TestResponse refused = three.read_response();
  EXPECT_EQ(refused.status, 503);
  EXPECT_EQ(refused.field("Retry-After"), "1");
  one.close();
  ASSERT_TRUE(testing::soon([&] { return server_->stats().connections_open == 1; }));
  EXPECT_EQ(fetch(port_, "GET", "/echo").status, 200);
  EXPECT_EQ(server_->stats().connections_refused, 1);
}

TEST_F(HttpServerTest, UnusedConnectionsMakeRoomForNewOnes) {
  start({.connections_max = 2, .evict_idle_ms = 50});
  TestClient busy(port_), idle(port_);
  busy.send(request_text("GET", "/hold"));
  ASSERT_TRUE(testing::soon([&] { return held() == 1 && server_->stats().connections_open == 2; }));
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  EXPECT_EQ(fetch(port_, "GET", "/echo").status, 200);
  EXPECT_TRUE(idle.ended());
  EXPECT_EQ(gone_, 0) << "the one in use stays";
}

// What an attacker needs no bandwidth for: requests that say one byte now and then.
TEST_F(HttpServerTest, RequestsThatArriveTooSlowlyMakeRoomForNewOnes) {
  start({.connections_max = 3, .evict_arriving_ms = 300});
  TestClient held_client(port_);
  held_client.send(request_text("GET", "/hold"));
  ASSERT_TRUE(testing::soon([&] { return held() == 1; }));
  TestClient first(port_);
  first.send("GET /echo HTTP/1.1\r\nHo");
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  TestClient second(port_);
  second.send("POST /echo HTTP/1.1\r\nHost: te\r\nContent-Length: 5\r\n\r\na");
  ASSERT_TRUE(testing::soon([&] { return server_->stats().connections_open == 3; }));
  EXPECT_EQ(TestClient(port_).read_response().status, 503) << "both are young";
  std::this_thread::sleep_for(std::chrono::milliseconds(400));
  TestClient third(port_);
  third.send(request_text("GET", "/hold"));
  ASSERT_TRUE(testing::soon([&] { return held() == 2; }));
  EXPECT_TRUE(first.ended());
  second.send("bcde");
  EXPECT_EQ(second.read_response().status, 200) << "the oldest went alone";
  EXPECT_EQ(gone_, 0) << "those in use stay";
}

// Without a bound, small requests that nobody reads the answers of would fill the memory.
TEST_F(HttpServerTest, PipelinedRequestsWaitForTheirAnswersToBeRead) {
  start({.output_bytes_max = 50'000});
  constexpr int kRequests = 400;
  TestClient client(port_, 4096);
  std::string all;
  for (int i = 0; i < kRequests; ++i) all += request_text("GET", "/big");
  client.send(all);
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  EXPECT_LT(server_->stats().requests_total, 200);
  for (int i = 0; i < kRequests; ++i) {
    ASSERT_EQ(client.read_response().body.size(), 10'000u) << i;
  }
  client.send(request_text("GET", "/echo"));
  EXPECT_EQ(client.read_response().body, "GET");
}

// Answers that lie before the thread all at once, twice as many as may wait for the client.
TEST_F(HttpServerTest, ABurstOfPiecesIsNoSlowReader) {
  start({.output_bytes_max = 60'000});
  const TestResponse response = fetch(port_, "GET", "/burst");
  EXPECT_EQ(response.status, 200);
  EXPECT_EQ(response.body.size(), 1000u * kBurstPieces);
  EXPECT_EQ(server_->stats().slow_readers_dropped, 0);
}

TEST_F(HttpServerTest, APieceLongerThanWhatMayWaitIsNoSlowReader) {
  start({.output_bytes_max = 60'000});
  const TestResponse response = fetch(port_, "GET", "/large");
  EXPECT_EQ(response.body.size(), 200'000u);
  EXPECT_EQ(server_->stats().slow_readers_dropped, 0);
}

}  // namespace
}  // namespace jige::api
