// What a router does where servers refuse, break or talk nonsense.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <atomic>
#include <chrono>
#include <nlohmann/json.hpp>
#include <thread>

#include "api/route_test_support.h"
#include "base/rng.h"
#include "base/test_fuzz_rounds.h"

namespace jige::api {
namespace {

using testing::count_of;
using ::testing::HasSubstr;
using testing::json_of;
using testing::kAsk;
using testing::kAskedPath;
using testing::kAskStream;
using ::testing::Not;
using testing::PlayedUpstream;
using testing::quick_router;
using testing::RawUpstream;
using testing::refuse_with;
using testing::request_text;
using testing::RoutedServers;
using testing::soon;
using testing::TestClient;
using testing::TestResponse;

TEST(Router, AsksAnotherWhereOneRefuses) {
  for (const int status : {429, 503}) {
    PlayedUpstream one("one"), two("two");
    one.answer_with(refuse_with(status));
    RoutedServers routed({one.url(), two.url()});
    for (int i = 0; i < 6; ++i) {
      EXPECT_EQ(json_of(routed.post(kAskedPath, kAsk).body)["from"], "two");
    }
    EXPECT_GE(one.asked(), 1);
    EXPECT_EQ(count_of(routed, 0, "refused_total"), one.asked());
    EXPECT_EQ(count_of(routed, 1, "retries_total"), one.asked());
  }
}

TEST(Router, PassesARefusalOnWhereAllRefuse) {
  PlayedUpstream one("one"), two("two");
  one.answer_with(refuse_with(429, "17"));
  two.answer_with(refuse_with(429, "17"));
  RoutedServers routed({one.url(), two.url()});
  const TestResponse refused = routed.post(kAskedPath, kAsk);
  EXPECT_EQ(refused.status, 429);
  EXPECT_EQ(refused.body, "{\"refused\":429}");
  EXPECT_EQ(refused.field("Retry-After"), "17");
  EXPECT_EQ(one.asked(), 1);
  EXPECT_EQ(two.asked(), 1);
}

TEST(Router, PassesTheRefusalOnThatWantsTheShortestWait) {
  PlayedUpstream one("one"), two("two"), three("three");
  one.answer_with(refuse_with(429, "30"));
  two.answer_with(refuse_with(429, "7"));
  three.answer_with(refuse_with(503, "soon"));
  RoutedServers routed({one.url(), two.url(), three.url()});
  for (int i = 0; i < 3; ++i) {  // whoever is asked first
    EXPECT_EQ(routed.post(kAskedPath, kAsk).field("Retry-After"), "7") << i;
  }
}

// All rest, for longer than a client is to wait: it is told how long, and nobody is asked.
TEST(Router, TellsHowLongAllRest) {
  PlayedUpstream one("one"), two("two");
  one.answer_with(refuse_with(429, "30"));
  two.answer_with(refuse_with(503, "9"));
  RouterOptions options = quick_router();
  options.health.rest_max_s = 60;
  options.rest_wait_s = 0.2;
  RoutedServers routed({one.url(), two.url()}, options);
  EXPECT_EQ(routed.post(kAskedPath, kAsk).field("Retry-After"), "9");
  const auto begin = std::chrono::steady_clock::now();
  const TestResponse told = routed.post(kAskedPath, kAsk);
  const std::chrono::duration<double> waited = std::chrono::steady_clock::now() - begin;
  EXPECT_EQ(told.status, 503);
  EXPECT_EQ(json_of(told.body)["error"]["code"], "no_server");
  EXPECT_THAT(told.field("Retry-After"), ::testing::AnyOf("9", "8", "7"));
  EXPECT_GE(waited.count(), 0.15) << "they might have come back";
  EXPECT_LT(waited.count(), 5);
  EXPECT_EQ(one.asked(), 1);
  EXPECT_EQ(two.asked(), 1);
}

// One rests, and the other has refused: the client gets that refusal, when it has waited.
TEST(Router, PassesARefusalOnWhereTheOthersRest) {
  PlayedUpstream one("one"), two("two");
  one.answer_with(refuse_with(429, "50"));
  RouterOptions options = quick_router();
  options.policy.rule = plan::RouteRule::kRoundRobin;
  options.health.rest_max_s = 60;
  options.rest_wait_s = 0.2;
  RoutedServers routed({one.url(), two.url()}, options);
  EXPECT_EQ(json_of(routed.post(kAskedPath, kAsk).body)["from"], "two");
  two.answer_with(refuse_with(429, "40"));
  const TestResponse refused = routed.post(kAskedPath, kAsk);
  EXPECT_EQ(refused.status, 429);
  EXPECT_EQ(refused.field("Retry-After"), "40");
  EXPECT_EQ(one.asked(), 1);
}

TEST(Router, WaitsForARestThatIsShort) {
  PlayedUpstream one("one");
  one.answer_with(refuse_with(429, "1"));
  RouterOptions options = quick_router();
  options.health.rest_min_s = options.health.rest_max_s = 0.3;
  RoutedServers routed({one.url()}, options);
  EXPECT_EQ(routed.post(kAskedPath, kAsk).status, 429);
  one.answer_with(nullptr);
  EXPECT_EQ(json_of(routed.post(kAskedPath, kAsk).body)["from"], "one");
}

// A server that has names of its own for requests: those of the router are the client's.
TEST(Router, PassesNoIdsOfServersOn) {
  RawUpstream server(
      "HTTP/1.1 200 OK\r\nX-Request-ID: its\r\nX-Odd: yes\r\nContent-Length: 2\r\n\r\n{}");
  RoutedServers routed({server.url()});
  const TestResponse made = routed.post(kAskedPath, kAsk);
  EXPECT_EQ(made.field("X-Odd"), "yes");
  EXPECT_TRUE(made.field("x-request-id").starts_with("req-")) << made.head;
  EXPECT_EQ(routed.post(kAskedPath, kAsk, "X-Request-ID: mine\r\n").field("x-request-id"), "mine");
}

TEST(Router, CountsWhatServersAnswered) {
  PlayedUpstream one("one");
  RoutedServers routed({one.url()});
  std::atomic<int> status{200};
  one.answer_with([&](HttpRequest, const std::shared_ptr<Responder>& responder) {
    responder->respond({.status = status, .body = "{}"});
  });
  for (const int each : {200, 399, 400, 404, 499, 500, 599, 429}) {
    status = each;
    EXPECT_EQ(routed.post(kAskedPath, kAsk).status, each);
  }
  one.answer_with(nullptr);
  EXPECT_EQ(routed.post(kAskedPath, kAskStream).body, "data: one\n\ndata: [DONE]\n\n");
  const std::string metrics = routed.get("/metrics").body;
  const std::string server = "{server=\"" + one.url() + "\"";
  for (const char* kind :
       {",kind=\"ok\"} 3\n", ",kind=\"client_error\"} 3\n", ",kind=\"server_error\"} 2\n"}) {
    EXPECT_THAT(metrics, HasSubstr("jige_route:answers_total" + server + kind));
  }
  EXPECT_THAT(metrics, HasSubstr("jige_route:answer_seconds_count" + server + "} 8\n"));
  EXPECT_EQ(count_of(routed, 0, "server_errors_total"), 2);
}

TEST(Router, DoesNotAskTwiceWhatFailed) {
  PlayedUpstream one("one"), two("two");
  for (PlayedUpstream* server : {&one, &two}) {
    server->answer_with([](HttpRequest, const auto& responder) {
      responder->respond({.status = 500, .body = "failed"});
    });
  }
  RoutedServers routed({one.url(), two.url()});
  const TestResponse failed = routed.post(kAskedPath, kAsk);
  EXPECT_EQ(failed.status, 500);
  EXPECT_EQ(failed.body, "failed");
  EXPECT_EQ(one.asked() + two.asked(), 1);
}

TEST(Router, AsksAnotherWhereOneIsGone) {
  auto one = std::make_unique<PlayedUpstream>("one");
  PlayedUpstream two("two");
  RouterOptions options = quick_router();
  options.health.probe_s = 1000;  // requests themselves find out
  RoutedServers routed({one->url(), two.url()}, options);
  one->kill();
  for (int i = 0; i < 4; ++i) EXPECT_EQ(json_of(routed.post(kAskedPath, kAsk).body)["from"], "two");
  EXPECT_TRUE(soon([&] { return routed.servers_up() == 1; }));
  EXPECT_EQ(count_of(routed, 0, "failed_total"), 1) << "then nothing is sent to it";
}

TEST(Router, ComesBackToAServerThatComesBack) {
  auto one = std::make_unique<PlayedUpstream>("one");
  const uint16_t port = static_cast<uint16_t>(std::stoi(one->url().substr(17)));
  RoutedServers routed({one->url()});
  one = nullptr;
  EXPECT_TRUE(soon([&] { return routed.get("/health").status == 503; }));
  EXPECT_EQ(json_of(routed.post(kAskedPath, kAsk).body)["error"]["code"], "no_server");
  PlayedUpstream again("again", {"tiny"}, {.port = port});
  EXPECT_TRUE(soon([&] { return routed.servers_up() == 1; }));
  EXPECT_EQ(json_of(routed.post(kAskedPath, kAsk).body)["from"], "again");
}

TEST(Router, AsksOnceMoreWhereAServerIsLostBeforeItAnswers) {
  RawUpstream one(""),
      two("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: "
          "chunked\r\n\r\n"),
      three("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf of it");
  PlayedUpstream well("well");
  RouterOptions options = quick_router();
  options.policy.rule = plan::RouteRule::kRoundRobin;
  options.health.backoff_s = options.health.backoff_max_s = 1000;  // each of them once
  for (const RawUpstream* broken : {&one, &two, &three}) {
    RoutedServers routed({broken->url(), well.url()}, options);
    const TestResponse answer = routed.post(kAskedPath, kAskStream);
    EXPECT_EQ(answer.body, "data: well\n\ndata: [DONE]\n\n");
    EXPECT_EQ(broken->asked(), 1);
  }
  // A request that takes servers with it takes two.
  RoutedServers routed({one.url(), two.url(), three.url(), well.url()}, options);
  const TestResponse lost = routed.post(kAskedPath, kAsk);
  EXPECT_EQ(lost.status, 503);
  EXPECT_EQ(json_of(lost.body)["error"]["code"], "server_lost");
  EXPECT_THAT(lost.body, Not(HasSubstr("127.0.0.1"))) << "where servers are is no client's matter";
  EXPECT_EQ(three.asked(), 1);
}

TEST(Router, AsksAnotherWhereOneIsNoServer) {
  for (const std::string& bytes :
       {std::string("SSH-2.0-OpenSSH\r\n\r\n"), std::string("HTTP/1.1 200\r\nno colon\r\n\r\n"),
        std::string("HTTP/1.1 200 OK\r\nContent-Length: -5\r\n\r\n"),
        std::string("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n"),
        "HTTP/1.1 200 OK\r\nX: " + std::string(70'000, 'x'),
        "HTTP/1.1 503 No\r\n\r\n" + std::string(3 << 20, 'x')}) {
    RawUpstream one(bytes);
    PlayedUpstream two("two");
    RouterOptions options = quick_router();
    options.policy.rule = plan::RouteRule::kRoundRobin;
    RoutedServers routed({one.url(), two.url()}, options);
    EXPECT_EQ(json_of(routed.post(kAskedPath, kAsk).body)["from"], "two") << bytes.substr(0, 40);
    EXPECT_EQ(one.asked(), 1);
  }
}

// Whatever a server says of its load, it is well, and answers go on.
TEST(Router, TakesAnyBytesOfAServersLoad) {
  const std::string good =
      "HTTP/1.1 200 OK\r\nContent-Length: 60\r\n\r\njige:num_requests_running 3\n"
      "jige:num_requests_waiting 999\n";
  for (uint64_t seed = 0; seed < fuzz_rounds(25); ++seed) {
    Rng rng(derive_key(seed, "load bytes"));
    std::string bytes = good;
    for (uint64_t i = rng.below(4); i > 0; --i) {
      bytes[rng.below(bytes.size())] = static_cast<char>(rng.below(256));
    }
    if (rng.below(3) == 0) bytes.resize(rng.below(bytes.size()));
    RawUpstream one(bytes);
    PlayedUpstream well("well");
    RoutedServers routed({one.url(), well.url()});
    EXPECT_TRUE(soon([&] { return one.told() > 0 && well.metrics_asked() > 0; })) << seed;
    EXPECT_EQ(routed.servers_up(), 2) << seed;
    const double others = routed.top()["servers"][0]["other_requests"];
    EXPECT_GE(others, 0) << seed;
    EXPECT_LE(others, 2e9) << seed;
  }
}

// Random damage to an answer: the client gets something whole, or what is clearly not.
TEST(Router, TakesAnyBytesOfAServer) {
  const std::string good =
      "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
      "9\r\ndata: a\n\n\r\n9\r\ndata: b\n\n\r\ne\r\ndata: [DONE]\n\n\r\n0\r\n\r\n";
  PlayedUpstream well("well");
  RouterOptions options = quick_router();
  options.policy.rule = plan::RouteRule::kRoundRobin;
  for (uint64_t seed = 0; seed < fuzz_rounds(25); ++seed) {
    Rng rng(derive_key(seed, "upstream damage"));
    std::string bytes = good;
    for (uint64_t i = rng.below(3); i > 0; --i) {
      bytes[rng.below(bytes.size())] = static_cast<char>(rng.below(256));
    }
    if (rng.below(2) == 0) bytes.resize(rng.below(bytes.size()));
    RawUpstream one(bytes);
    RoutedServers routed({one.url(), well.url()}, options);
    const TestResponse answer = routed.post(kAskedPath, kAskStream);
    EXPECT_GE(answer.status, 100) << seed;
    EXPECT_TRUE(soon([&] { return routed.router().open_count() == 0; })) << seed;
  }
}

TEST(Router, SaysInTheStreamThatItsServerWasLost) {
  const std::string head =
      "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n";
  const std::string half = "12\r\ndata: one\n\ndata: t\r\n";
  RawUpstream broken(head + half);
  PlayedUpstream well("well");
  RouterOptions options = quick_router();
  options.policy.rule = plan::RouteRule::kRoundRobin;
  const auto stream_of = [&](const char* path) {
    RoutedServers routed({broken.url(), well.url()}, options);
    const TestResponse answer = routed.post(path, kAskStream);
    EXPECT_EQ(answer.status, 200);
    EXPECT_EQ(count_of(routed, 1, "requests_total"), 0) << "nothing is asked twice";
    EXPECT_TRUE(answer.body.starts_with("data: one\n\n")) << answer.body;
    EXPECT_TRUE(answer.body.ends_with("\n\n")) << answer.body;
    EXPECT_THAT(routed.get("/metrics").body, HasSubstr("ended_total{end=\"cut\"} 1"));
    return answer.body.substr(std::min<size_t>(answer.body.size(), 11));
  };
  for (const char* path : {"/v1/completions", "/v1/chat/completions"}) {
    const std::string rest = stream_of(path);
    ASSERT_TRUE(rest.starts_with("data: {")) << rest;
    EXPECT_EQ(json_of(rest.substr(6))["error"]["code"], "server_lost");
  }
  const std::string responses = stream_of("/v1/responses");
  ASSERT_TRUE(responses.starts_with("event: error\ndata: {")) << responses;
  EXPECT_EQ(json_of(responses.substr(19))["type"], "error");
  const std::string messages = stream_of("/v1/messages");
  ASSERT_TRUE(messages.starts_with("event: error\ndata: {")) << messages;
  EXPECT_EQ(json_of(messages.substr(19))["error"]["type"], "overloaded_error");
}

// What is no stream of events has no place for an error: it ends without its end.
TEST(Router, CutsALongBodyWhoseServerIsLost) {
  RawUpstream broken("HTTP/1.1 200 OK\r\nContent-Length: 9000000\r\n\r\n" +
                     std::string(2 << 20, 'x'));
  RoutedServers routed({broken.url()});
  TestClient client(routed.port());
  client.send(request_text("POST", kAskedPath, kAsk));
  const std::string all = client.read_until("");
  EXPECT_TRUE(all.starts_with("HTTP/1.1 200"));
  EXPECT_FALSE(all.ends_with("0\r\n\r\n"));
  EXPECT_TRUE(client.ended());
}

TEST(Router, PassesALongBodyOnInPieces) {
  std::string body(5 << 20, 'x');
  for (size_t i = 0; i < body.size(); i += 1000) body[i] = static_cast<char>('a' + i / 1000 % 26);
  PlayedUpstream server("one");
  server.answer_with(
      [&](HttpRequest, const auto& responder) { responder->respond({.body = body}); });
  RoutedServers routed({server.url()});
  EXPECT_EQ(routed.post(kAskedPath, kAsk).body, body);
}

TEST(Router, ServesBesideAThousandIdleConnections) {
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
  const size_t count = limit.rlim_cur > 5000 ? 1200 : limit.rlim_cur / 4;
  PlayedUpstream server("one");
  HttpServerOptions http;
  http.connections_max = 4000;
  RoutedServers routed({server.url()}, quick_router(), {}, http);
  std::vector<TestClient> idle;
  for (size_t i = 0; i < count; ++i) idle.emplace_back(routed.port());
  for (int i = 0; i < 20; ++i) EXPECT_EQ(routed.post(kAskedPath, kAsk).status, 200);
  for (size_t i = 0; i < count; i += count / 20) {
    idle[i].send(request_text("POST", kAskedPath, kAskStream));
    EXPECT_EQ(idle[i].read_response().status, 200) << i;
  }
}

}  // namespace
}  // namespace jige::api
