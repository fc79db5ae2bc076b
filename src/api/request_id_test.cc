// The ids of requests: who gives them, and that every answer and every server behind a router has
// them.
#include "api/request_id.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "api/http_server_test_support.h"
#include "api/route_test_support.h"
#include "api/service_test_support.h"

namespace jige::api {
namespace {

using testing::completion_body;
using testing::json_of;
using testing::kAsk;
using testing::kAskStream;
using testing::PlayedUpstream;
using testing::request_text;
using testing::RoutedServers;
using testing::TestClient;
using testing::TestResponse;
using testing::TestServer;

constexpr const char* kNamedPath = "/v1/completions";

std::string named(const std::string& id) { return "X-Request-ID: " + id + "\r\n"; }

// How often an answer has the field.
int64_t id_count(const TestResponse& response) {
  int64_t count = 0;
  for (size_t at = response.head.find("\r\nx-request-id: "); at != std::string::npos;
       at = response.head.find("\r\nx-request-id: ", at + 1)) {
    ++count;
  }
  return count;
}

TEST(RequestId, IsVisibleAsciiOfBoundedLength) {
  for (const char* good : {"a", "req-1", "7f3c/{\"x\"}~", "!"}) EXPECT_TRUE(is_request_id(good));
  EXPECT_TRUE(is_request_id(std::string(128, 'x')));
  for (const std::string& bad : {std::string(), std::string(129, 'x'), std::string("a b"),
                                 std::string("a\tb"), std::string("a\nb"), std::string("\x7f"),
                                 std::string("a\0b", 3), std::string("\xc3\xbc")}) {
    EXPECT_FALSE(is_request_id(bad)) << bad;
  }
}

TEST(RequestId, IsAnotherEachTime) {
  RequestIds ids, others;
  std::set<std::string> seen;
  for (int i = 0; i < 1000; ++i) {
    EXPECT_TRUE(is_request_id(*seen.insert(ids.next()).first));
    seen.insert(others.next());
  }
  EXPECT_EQ(seen.size(), 2000U);
}

TEST_F(HttpServerTest, NamesEveryRequestInItsAnswer) {
  HttpServerOptions options;
  options.body_bytes_max = 100;
  start(options);
  std::set<std::string> seen;
  TestClient client(port_);
  const std::string own = named("of-client:1");
  const std::pair<const char*, std::string> requests[] = {
      {"/echo", ""},
      {"/echo", own},
      {"/stream", ""},
      {"/stream", own},
      {"/drop", own},
      {"/drop", ""},
      {"/echo", "Origin: http://evil\r\n"},
      {"/echo%zz", own},
      {"/echo%zz", ""},
      {"/echo", own + "Content-Length: 101\r\n"},
      {"/echo", "x: y" + std::string(20'000, 'y') + "\r\n"}};
  for (const auto& [path, fields] : requests) {
    const TestResponse response = testing::fetch(port_, "GET", path, "", fields);
    const std::string id = response.field("x-request-id");
    EXPECT_EQ(id_count(response), 1) << path << response.head;
    EXPECT_TRUE(is_request_id(id)) << path << response.head;
    if (fields.starts_with(own)) {
      EXPECT_EQ(id, "of-client:1") << path << response.status;
    } else {
      EXPECT_TRUE(seen.insert(id).second) << path << response.status;
    }
  }
}

TEST_F(HttpServerTest, TakesNoIdThatLogsCannotHave) {
  start();
  const std::string bad[] = {named("two words"),      named(std::string(129, 'x')),
                             named("\xc3\xbc"),       named("a") + named("b"),
                             named("a") + named("a"), named("")};
  for (const std::string& fields : bad) {
    const TestResponse response = testing::fetch(port_, "GET", "/echo", "", fields);
    EXPECT_EQ(response.status, 200);
    EXPECT_EQ(id_count(response), 1);
    EXPECT_TRUE(response.field("x-request-id").starts_with("req-")) << response.head;
  }
}

// Requests of one connection do not inherit ids.
TEST_F(HttpServerTest, NamesEachRequestOfAConnection) {
  start();
  TestClient client(port_);
  client.send(request_text("GET", "/echo", "", named("mine")) + request_text("GET", "/echo"));
  EXPECT_EQ(client.read_response().field("x-request-id"), "mine");
  EXPECT_TRUE(client.read_response().field("x-request-id").starts_with("req-"));
}

// A server calls an answer by its own id, unless the client has one.
TEST(Service, TakesTheIdOfItsClient) {
  TestServer server;
  for (const char* more : {"", R"(,"stream":true)"}) {
    const TestResponse own = server.post(kNamedPath, completion_body(1, 3, more));
    EXPECT_TRUE(own.field("x-request-id").starts_with("cmpl-")) << own.head;
    EXPECT_EQ(id_count(own), 1);
    const TestResponse told = testing::fetch(server.port(), "POST", kNamedPath,
                                             completion_body(1, 3, more), named("of-client:2"));
    EXPECT_EQ(told.status, 200);
    EXPECT_EQ(told.field("x-request-id"), "of-client:2");
    EXPECT_EQ(id_count(told), 1);
  }
}

TEST(Router, GivesServersTheIdThatItsAnswerHas) {
  PlayedUpstream one("one");
  RoutedServers routed({one.url()});
  for (const char* body : {kAsk, kAskStream}) {
    const TestResponse told = routed.post(kNamedPath, body, named("of-client:3"));
    EXPECT_EQ(told.field("x-request-id"), "of-client:3");
    EXPECT_EQ(one.last().id, "of-client:3");
    const TestResponse made = routed.post(kNamedPath, body);
    EXPECT_TRUE(made.field("x-request-id").starts_with("req-")) << made.head;
    EXPECT_EQ(made.field("x-request-id"), one.last().id);
    EXPECT_EQ(id_count(made), 1);
    const TestResponse odd = routed.post(kNamedPath, body, named("two words"));
    EXPECT_EQ(odd.field("x-request-id"), one.last().id);
    EXPECT_TRUE(one.last().id.starts_with("req-"));
  }
  EXPECT_EQ(id_count(routed.get("/health")), 1);
}

// All that are asked know a request by one name, and so does a refusal of one or of the router.
TEST(Router, KeepsTheIdWhereOneServerRefuses) {
  PlayedUpstream one("one"), two("two");
  for (PlayedUpstream* server : {&one, &two}) server->answer_with(testing::refuse_with(429));
  RoutedServers routed({one.url(), two.url()});
  const TestResponse refused = routed.post(kNamedPath, kAsk);
  EXPECT_EQ(refused.status, 429);
  EXPECT_EQ(one.last().id, refused.field("x-request-id"));
  EXPECT_EQ(two.last().id, refused.field("x-request-id"));
  const TestResponse unknown = routed.post(kNamedPath, R"({"model":"none","prompt":"x"})");
  EXPECT_EQ(unknown.status, 404);
  EXPECT_EQ(id_count(unknown), 1);
}

TEST(Router, NamesAStreamThatItBeginsItself) {
  PlayedUpstream one("one");
  std::shared_ptr<Responder> held;
  one.answer_with(
      [&](HttpRequest, std::shared_ptr<Responder> responder) { held = std::move(responder); });
  RouterOptions options = testing::quick_router();
  options.event_pause_s = 0.05;
  RoutedServers routed({one.url()}, options);
  TestClient client(routed.port());
  client.send(request_text("POST", kNamedPath, kAskStream));
  const std::string head = client.read_until("\r\n\r\n");
  EXPECT_THAT(head, ::testing::HasSubstr("x-request-id: " + one.last().id + "\r\n"));
  EXPECT_TRUE(one.last().id.starts_with("req-"));
  held->post([held] { held->respond({.body = "{}"}); });
  held = nullptr;
}

}  // namespace
}  // namespace jige::api
