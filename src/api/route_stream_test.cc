// Streams through a router whose first event is long in coming: the client hears of it, and nothing
// of an answer is lost or asked for in vain.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <regex>

#include "api/route_events.h"
#include "api/route_test_support.h"

namespace jige::api {
namespace {

using ::testing::HasSubstr;
using testing::json_of;
using testing::kAsk;
using testing::kAskStream;
using testing::PlayedUpstream;
using testing::quick_router;
using testing::refuse_with;
using testing::request_text;
using testing::RoutedServers;
using testing::soon;
using testing::TestClient;
using testing::TestResponse;

constexpr const char* kStreamPath = "/v1/completions";
constexpr const char* kCommentChunk = "3\r\n:\n\n\r\n";

TEST(RouteEvents, FindsWhatStandsInFrontOfTheFirstEvent) {
  EXPECT_EQ(comments_end(""), 0u);
  EXPECT_EQ(comments_end(":\n\n: hi\r\n\r\ndata: x\n\n"), 11u);
  EXPECT_EQ(comments_end(":\n\n:half"), 3u);
  EXPECT_EQ(comments_end("data: x\n\n:\n\n"), 0u);
  EXPECT_EQ(comments_end("\nid: 5\n"), 1u);
}

TEST(RouteEvents, ReadsTheErrorOfAnAnswer) {
  const ApiError full = error_of(
      {.status = 429, .body = R"({"error":{"message":"full","code":"queue_full","param":null}})"});
  EXPECT_EQ(full.status, 429);
  EXPECT_EQ(full.message, "full");
  EXPECT_EQ(full.code, "queue_full");
  for (const char* body : {"", "[1]", "{\"error\":\"text\"}", "<html>", "{\"error\":{}}"}) {
    const ApiError unsaid = error_of({.status = 502, .body = body});
    EXPECT_EQ(unsaid.status, 502);
    EXPECT_EQ(unsaid.message, "the server gave no stream, but HTTP 502") << body;
  }
  EXPECT_EQ(error_of({.status = 200, .body = "{}"}).status, 500);
}

RouterOptions talking_router(plan::RouteRule rule = plan::RouteRule::kRoundRobin) {
  RouterOptions options = quick_router();
  options.policy.rule = rule;
  options.event_pause_s = 0.1;
  return options;
}

// Servers that keep who asks them waiting; a client that has heard two comments of the router.
struct LateStreams {
  explicit LateStreams(const char* path, RouterOptions options = talking_router())
      : routed({one.url(), two.url()}, std::move(options)), client(routed.port()) {
    for (PlayedUpstream* server : {&one, &two}) {
      server->answer_with([this](HttpRequest, std::shared_ptr<Responder> responder) {
        held.push_back(std::move(responder));
      });
    }
    client.send(request_text("POST", path, kAskStream));
    EXPECT_TRUE(soon([&] { return one.asked() + two.asked() == 1; }));
    const std::string head = client.read_until("\r\n\r\n");
    EXPECT_TRUE(head.starts_with("HTTP/1.1 200")) << head;
    EXPECT_THAT(head, HasSubstr("text/event-stream"));
    for (int i = 0; i < 2; ++i) EXPECT_EQ(client.read_until(kCommentChunk), kCommentChunk);
  }
  PlayedUpstream& asked() { return one.asked() > 0 ? one : two; }
  PlayedUpstream& other() { return one.asked() > 0 ? two : one; }
  // What comes up to the end, without chunks and comments.
  std::string rest() {
    const std::string chunks = client.read_until("0\r\n\r\n");
    return std::regex_replace(chunks, std::regex("[0-9a-f]+\r\n((:\n\n)|((.|\n)*?\n\n)|)\r\n"),
                              "$3");
  }

  std::vector<std::shared_ptr<Responder>> held;  // before the servers, which end first
  PlayedUpstream one{"one"}, two{"two"};
  RoutedServers routed;
  TestClient client;
};

TEST(RouteStream, BeginsWhereTheServerSaysNothingForLong) {
  LateStreams late(kStreamPath);
  Responder& server = *late.held.front();
  server.post([&] {
    server.begin({.content_type = "text/event-stream"});
    server.write("data: a\n\n");
  });
  EXPECT_NE(late.client.read_until("data: a\n\n\r\n"), "");
  EXPECT_EQ(late.client.read_until(kCommentChunk, 350), "") << "now its server speaks for itself";
  server.post([&] {
    server.write("data: [DONE]\n\n");
    server.end();
  });
  EXPECT_EQ(late.rest(), "data: [DONE]\n\n");
  EXPECT_EQ(late.other().asked(), 0);
}

TEST(RouteStream, SaysCommentsOfItsOwnInPlaceOfTheServers) {
  RouterOptions options = talking_router();
  options.event_pause_s = 1000;
  PlayedUpstream one("one");
  std::shared_ptr<Responder> held;
  one.answer_with([&](HttpRequest, std::shared_ptr<Responder> responder) {
    held = std::move(responder);
    held->begin({.content_type = "text/event-stream"});
    held->write(":\n\n: still here\n\n");
  });
  RoutedServers routed({one.url()}, options);
  TestClient client(routed.port());
  client.send(request_text("POST", kStreamPath, kAskStream));
  ASSERT_TRUE(soon([&] { return one.asked() == 1; }));
  EXPECT_EQ(client.read_until("HTTP", 250), "") << "it may be asked elsewhere";
  held->post([&] {
    held->write("data: a\n\n:\n\n");
    held->end();
  });
  EXPECT_EQ(client.read_response().body, "data: a\n\n:\n\n") << "behind an event all goes on";
  // Of the server the first bytes count that go on.
  const std::string metrics = routed.get("/metrics").body;
  const std::string name = "jige_route:first_byte_seconds_sum{server=\"" + one.url() + "\"} ";
  ASSERT_THAT(metrics, HasSubstr(name));
  EXPECT_GT(std::stod(metrics.substr(metrics.find(name) + name.size())), 0.2);
  held = nullptr;
}

// Where the server has begun by then, its head is the stream's, but for what is the router's own.
TEST(RouteStream, BeginsWithTheHeadOfTheServerWhereThatIsThere) {
  PlayedUpstream one("one");
  one.answer_with([&](HttpRequest, const std::shared_ptr<Responder>& responder) {
    responder->on_gone([keep = responder] {});
    responder->begin({.content_type = "text/event-stream",
                      .headers = {{"x-request-id", "its"}, {"x-of-it", "too"}}});
  });
  RouterOptions options = talking_router();
  options.event_pause_s = 0.4;
  RoutedServers routed({one.url()}, options);
  TestClient client(routed.port());
  client.send(request_text("POST", kStreamPath, kAskStream));
  const std::string head = client.read_until("\r\n\r\n");
  EXPECT_THAT(head, HasSubstr("x-of-it: too\r\n"));
  EXPECT_THAT(head, HasSubstr("x-request-id: " + one.last().id + "\r\n"));
  EXPECT_EQ(client.read_until(kCommentChunk), kCommentChunk);
}

TEST(RouteStream, AsksAnotherServerBehindComments) {
  LateStreams late(kStreamPath);
  late.other().answer_with(nullptr);
  Responder& server = *late.held.front();
  server.post([&] {
    server.begin({.content_type = "text/event-stream"});
    server.write(":\n\n");
  });
  late.client.read_until(kCommentChunk);
  late.asked().kill();
  EXPECT_THAT(late.rest(), ::testing::MatchesRegex("data: (one|two)\n\ndata: .DONE.\n\n"));
}

TEST(RouteStream, ErrorsBehindCommentsHaveTheFormOfTheRoute) {
  for (const char* path :
       {"/v1/completions", "/v1/chat/completions", "/v1/responses", "/v1/messages"}) {
    SCOPED_TRACE(path);
    LateStreams late(path);
    late.held.front()->post([&] {
      late.held.front()->respond(
          error_response({.status = 500, .message = "it broke"}, error_form(path)));
    });
    const std::string rest = late.rest();
    if (std::string_view(path).ends_with("completions")) {
      ASSERT_TRUE(rest.starts_with("data: {")) << rest;
      EXPECT_EQ(json_of(rest.substr(6))["error"]["message"], "it broke");
      EXPECT_EQ(json_of(rest.substr(6))["error"]["type"], "server_error");
      continue;
    }
    ASSERT_TRUE(rest.starts_with("event: error\ndata: {")) << rest;
    const Json event = json_of(rest.substr(19));
    EXPECT_EQ(event["type"], "error");
    EXPECT_EQ((event.contains("error") ? event["error"] : event)["message"], "it broke");
  }
}

TEST(RouteStream, TellsBehindCommentsThatAllRefuse) {
  LateStreams late(kStreamPath);
  late.other().answer_with(refuse_with(429));
  late.held.front()->post(
      [&] { late.held.front()->respond(error_response({.status = 429, .message = "full"})); });
  const std::string rest = late.rest();
  ASSERT_TRUE(rest.starts_with("data: {")) << rest;
  EXPECT_EQ(json_of(rest.substr(6))["error"]["type"], "rate_limit_error");
  EXPECT_EQ(late.other().asked(), 1);
}

TEST(RouteStream, AWholeAnswerBehindCommentsIsAnError) {
  LateStreams late(kStreamPath);
  late.held.front()->post([&] { late.held.front()->respond({.body = R"({"text":"all"})"}); });
  EXPECT_THAT(late.rest(), HasSubstr("the server gave no stream, but HTTP 200"));
}

TEST(RouteStream, SaysThatARequestWaitsForRoom) {
  RouterOptions options = talking_router();
  options.policy.requests_max = 1;
  LateStreams late(kStreamPath, options);
  TestClient second(late.routed.port()), third(late.routed.port()), whole(late.routed.port());
  second.send(request_text("POST", kStreamPath, kAskStream));
  ASSERT_TRUE(soon([&] { return late.other().asked() == 1; }));
  third.send(request_text("POST", kStreamPath, kAskStream));
  EXPECT_NE(third.read_until(kCommentChunk), "");
  whole.send(request_text("POST", kStreamPath, kAsk));
  EXPECT_EQ(whole.read_until("HTTP", 300), "") << "what is no stream waits in silence";
  EXPECT_EQ(late.one.asked() + late.two.asked(), 2);
}

TEST(RouteStream, GivesUpWhoseClientWentBehindComments) {
  LateStreams late(kStreamPath);
  late.client.close();
  EXPECT_TRUE(soon([&] { return late.routed.router().open_count() == 0; }));
}

}  // namespace
}  // namespace jige::api
