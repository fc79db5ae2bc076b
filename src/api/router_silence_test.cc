// What a router does where servers hang, say nothing or are slow, and where clients go or do not
// read.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "api/route_test_support.h"

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
using testing::request_text;
using testing::RoutedServers;
using testing::soon;
using testing::TestClient;
using testing::TestResponse;

TEST(Router, MovesOnFromAServerThatHangs) {
  RawUpstream one("");
  PlayedUpstream two("two");
  RouterOptions options = quick_router();
  options.policy.rule = plan::RouteRule::kRoundRobin;
  options.probe_answer_s = 0.1;
  RoutedServers routed({one.url(), two.url()}, options);
  one.hang();
  // Whichever comes first: its probes fail, or a request waits there until they have.
  for (int i = 0; i < 3; ++i) EXPECT_EQ(json_of(routed.post(kAskedPath, kAsk).body)["from"], "two");
  EXPECT_TRUE(soon([&] { return routed.servers_up() == 1; }));
}

// Takes requests and says nothing to them, though it is well by its probes.
struct SilentUpstream {
  explicit SilentUpstream(std::string name) : server(std::move(name)) {
    server.answer_with([this](HttpRequest, std::shared_ptr<Responder> responder) {
      held.push_back(std::move(responder));
    });
  }
  std::vector<std::shared_ptr<Responder>> held;  // before its server, which ends first
  PlayedUpstream server;
};

RouterOptions impatient() {
  RouterOptions options = quick_router();
  options.policy.rule = plan::RouteRule::kRoundRobin;
  options.answer_s = 0.4;
  options.event_pause_s = 0.05;
  return options;
}

std::string silent_count(RoutedServers& routed, const std::string& url,
                         const std::string& kind = "silent") {
  const std::string metrics = routed.get("/metrics").body;
  const std::string name =
      "jige_route:failures_total{server=\"" + url + "\",kind=\"" + kind + "\"} ";
  const size_t at = metrics.find(name);
  return at == std::string::npos ? "none" : metrics.substr(at + name.size(), 2);
}

TEST(RouterSilence, AsksAnotherWhereOneSaysNothing) {
  SilentUpstream one("one");
  PlayedUpstream two("two");
  RoutedServers routed({one.server.url(), two.url()}, impatient());
  EXPECT_EQ(json_of(routed.post(kAskedPath, kAsk).body)["from"], "two");
  EXPECT_EQ(one.server.asked(), 1);
  EXPECT_EQ(silent_count(routed, one.server.url()), "1\n");
  EXPECT_EQ(silent_count(routed, two.url()), "0\n");
  EXPECT_EQ(count_of(routed, 0, "failed_total"), 1);
  EXPECT_EQ(routed.servers_up(), 2) << "one request is no reason";
  // Its client has heard that it is not forgotten, and nothing of an answer.
  const TestResponse stream = routed.post(kAskedPath, kAskStream);
  EXPECT_EQ(one.server.asked(), 2);
  EXPECT_TRUE(stream.body.starts_with(":\n\n")) << stream.body;
  EXPECT_TRUE(stream.body.ends_with("\n\ndata: two\n\ndata: [DONE]\n\n")) << stream.body;
}

TEST(RouterSilence, IsToldToAClientWhereNobodyElseIsThere) {
  SilentUpstream one("one");
  RouterOptions options = impatient();
  options.health.silent_max = 100;
  RoutedServers routed({one.server.url()}, options);
  ::testing::internal::CaptureStderr();
  const TestResponse whole = routed.post(kAskedPath, kAsk);
  EXPECT_EQ(whole.status, 504);
  const Json error = json_of(whole.body)["error"];
  EXPECT_EQ(error["code"], "server_silent");
  EXPECT_EQ(error["type"], "timeout_error");
  EXPECT_EQ(error["message"],
            "the server said nothing for 0.4 s, the longest that the router's --answer-seconds "
            "lets it");
  EXPECT_EQ(routed.post("/v1/messages", kAsk).status, 504);
  const TestResponse stream = routed.post(kAskedPath, kAskStream);
  EXPECT_THAT(stream.body, HasSubstr("\ndata: {\"error\":"));
  EXPECT_THAT(stream.body, HasSubstr("server_silent"));
  EXPECT_THAT(whole.body + stream.body, Not(HasSubstr("127.0.0.1")));
  const std::string told = ::testing::internal::GetCapturedStderr();
  EXPECT_THAT(told, HasSubstr(one.server.url() + " did not answer it, at /v1/completions: nothing "
                                                 "came for the 0.4 s of --answer-seconds"));
  EXPECT_THAT(told, HasSubstr("request " + whole.field("x-request-id") + ": "));
  EXPECT_THAT(routed.get("/metrics").body, HasSubstr("ended_total{end=\"lost\"} 3\n"));
  EXPECT_EQ(one.server.asked(), 3);
}

TEST(RouterSilence, TakesTwoServersAndNoMore) {
  SilentUpstream one("one"), two("two");
  PlayedUpstream three("three");
  RoutedServers routed({one.server.url(), two.server.url(), three.url()}, impatient());
  EXPECT_EQ(routed.post(kAskedPath, kAsk).status, 504);
  EXPECT_EQ(one.server.asked(), 1);
  EXPECT_EQ(two.server.asked(), 1);
  EXPECT_EQ(three.asked(), 0);
}

// What another has refused says more than that one said nothing.
TEST(RouterSilence, IsNotToldWhereAnotherRefuses) {
  SilentUpstream one("one");
  PlayedUpstream two("two");
  two.answer_with(testing::refuse_with(429, "7"));
  RoutedServers routed({one.server.url(), two.url()}, impatient());
  const TestResponse refused = routed.post(kAskedPath, kAsk);
  EXPECT_EQ(refused.status, 429);
  EXPECT_EQ(refused.field("Retry-After"), "7");
}

TEST(RouterSilence, IsNoneWhereSomethingComes) {
  SilentUpstream one("one");
  RouterOptions options = impatient();
  options.answer_s = 0.6;
  RoutedServers routed({one.server.url()}, options);
  TestClient whole(routed.port()), stream(routed.port());
  whole.send(request_text("POST", kAskedPath, kAsk));
  ASSERT_TRUE(soon([&] { return one.server.asked() == 1; }));
  stream.send(request_text("POST", kAskedPath, kAskStream));
  ASSERT_TRUE(soon([&] { return one.server.asked() == 2; }));
  const auto to_both = [&](const std::function<void(Responder&)>& say) {
    for (const auto& responder : one.held) responder->post([&, say] { say(*responder); });
  };
  to_both([&](Responder& to) {
    to.begin({.content_type = &to == one.held[0].get() ? "text/x-odd" : "text/event-stream"});
  });
  for (int i = 0; i < 8; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    to_both([](Responder& to) { to.write(":\n\n"); });
  }
  to_both([](Responder& to) {
    to.write("data: x\n\n");
    to.end();
  });
  EXPECT_TRUE(whole.read_response().body.ends_with("data: x\n\n"));
  EXPECT_TRUE(stream.read_response().body.ends_with("data: x\n\n"));
  EXPECT_EQ(silent_count(routed, one.server.url()), "0\n");
}

// The same where it is the client that is slow, and not the server.
TEST(RouterSilence, IsNoneWhereTheClientDoesNotRead) {
  const std::string event = "data: " + std::string(64 << 10, 'x') + "\n\n";
  std::string all;
  for (int i = 0; i < 250; ++i) all += event;
  PlayedUpstream server("one");
  server.answer_with([&](HttpRequest, const std::shared_ptr<Responder>& responder) {
    responder->respond({.content_type = "text/event-stream", .body = all});
  });
  RouterOptions options = impatient();
  options.answer_s = 1;
  options.event_pause_s = 10;  // what comes is its server's alone
  RoutedServers routed({server.url()}, options);
  TestClient client(routed.port());
  client.send(request_text("POST", kAskedPath, kAskStream));
  std::this_thread::sleep_for(std::chrono::milliseconds(1500));
  EXPECT_EQ(client.read_response().body.size(), all.size());
  EXPECT_EQ(silent_count(routed, server.url()), "0\n");
}

TEST(RouterSilence, MayLastWhereThereIsNoBound) {
  SilentUpstream one("one");
  RouterOptions options = impatient();
  options.answer_s = 0;
  RoutedServers routed({one.server.url()}, options);
  TestClient client(routed.port());
  client.send(request_text("POST", kAskedPath, kAsk));
  ASSERT_TRUE(soon([&] { return one.server.asked() == 1; }));
  EXPECT_EQ(client.read_until("HTTP", 600), "");
  one.held[0]->post([&] { one.held[0]->respond({.body = "late"}); });
  EXPECT_EQ(client.read_response().body, "late");
}

TEST(RouterSilence, OfAFewRequestsInARowTakesAServerOut) {
  SilentUpstream one("one");
  RouterOptions options = impatient();
  options.health.silent_rest_s = 1.5;
  RoutedServers routed({one.server.url()}, options);
  const auto ask = [&] { return routed.post(kAskedPath, kAsk).status; };
  for (int i = 0; i < 2; ++i) EXPECT_EQ(ask(), 504);
  one.server.answer_with(testing::refuse_with(503, "0"));
  EXPECT_EQ(ask(), 503) << "it is there after all";
  one.server.answer_with([&](HttpRequest, std::shared_ptr<Responder> responder) {
    one.held.push_back(std::move(responder));
  });
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(routed.servers_up(), 1) << i;
    EXPECT_EQ(ask(), 504);
  }
  EXPECT_EQ(routed.servers_up(), 0);
  std::this_thread::sleep_for(std::chrono::milliseconds(200));  // its probes are well all the time
  EXPECT_EQ(routed.servers_up(), 0);
  EXPECT_EQ(routed.top()["servers"][0]["trouble"],
            "the last 3 requests had no answer within 0.4 s");
  EXPECT_EQ(json_of(routed.post(kAskedPath, kAsk).body)["error"]["code"], "no_server");
  one.server.answer_with(nullptr);
  EXPECT_TRUE(soon([&] { return routed.servers_up() == 1; }));
  EXPECT_EQ(ask(), 200);
  EXPECT_TRUE(soon([&] { return routed.top()["servers"][0]["trouble"] == ""; }));
}

// Clients that go before the router's patience ends, having had no byte; behind the rest there is
// one request, and the others wait until it is answered.
TEST(RouterSilence, IsKnownByClientsThatGoAndTriedByOneRequest) {
  SilentUpstream one("one");
  RouterOptions options = impatient();
  options.answer_s = 0;
  options.health.silent_rest_s = 0.3;
  options.health.abandoned_max = 2;
  options.health.abandoned_s = 0.08;
  RoutedServers routed({one.server.url()}, options);
  const auto ask_for = [&](int patience_ms) {
    TestClient client(routed.port());
    const int asked = one.server.asked();
    client.send(request_text("POST", kAskedPath, kAsk));
    EXPECT_TRUE(soon([&] { return one.server.asked() > asked; }));
    std::this_thread::sleep_for(std::chrono::milliseconds(patience_ms));
  };
  const auto abandoned = [&] { return silent_count(routed, one.server.url(), "abandoned"); };
  ask_for(120);
  EXPECT_TRUE(soon([&] { return abandoned() == "1\n"; }));
  EXPECT_EQ(routed.servers_up(), 1);
  ask_for(120);
  EXPECT_TRUE(soon([&] { return routed.servers_up() == 0; }));
  EXPECT_EQ(abandoned(), "2\n");
  EXPECT_EQ(routed.top()["servers"][0]["trouble"],
            "the last 2 clients went without a byte of an answer, each after 0.08 s or more");
  EXPECT_TRUE(soon([&] { return routed.servers_up() == 1; }));
  ask_for(0);  // a trial that says nothing, as its client goes too soon
  EXPECT_TRUE(soon([&] { return routed.router().open_count() == 0; }));
  TestClient trial(routed.port()), second(routed.port()), third(routed.port());
  for (TestClient* client : {&trial, &second, &third}) {
    client->send(request_text("POST", kAskedPath, kAsk));
    EXPECT_TRUE(soon([&] { return one.server.asked() == 4; }));
  }
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  EXPECT_EQ(one.server.asked(), 4) << "one alone";
  one.server.answer_with(nullptr);
  one.held.back()->post([&] { one.held.back()->respond({.body = "late"}); });
  EXPECT_EQ(trial.read_response().body, "late");
  EXPECT_EQ(second.read_response().status, 200);
  EXPECT_EQ(third.read_response().status, 200);
  EXPECT_EQ(one.server.asked(), 6);
}

// A client that has had the first event of a stream, whose server says nothing more by itself.
struct BegunStream {
  explicit BegunStream(const RouterOptions& options = soon_stalled())
      : routed({server.url()}, options), client(routed.port()) {
    server.answer_with([this](HttpRequest, std::shared_ptr<Responder> responder) {
      held = std::move(responder);
      held->begin({.content_type = "text/event-stream"});
      held->write("data: one\n\n");
    });
    client.send(request_text("POST", kAskedPath, kAskStream));
    EXPECT_NE(client.read_until("data: one\n\n"), "");
  }
  static RouterOptions soon_stalled() {
    RouterOptions options = quick_router();
    options.stalled_s = 0.2;
    return options;
  }

  std::shared_ptr<Responder> held;  // before its server, which ends first
  PlayedUpstream server{"one"};
  RoutedServers routed;
  TestClient client;
};

TEST(Router, GivesAStreamUpWhoseServerHangs) {
  BegunStream stream;
  EXPECT_EQ(stream.client.read_until("error", 150), "") << "it is slow, and that is all";
  stream.server.health_status = 503;
  EXPECT_NE(stream.client.read_until("server_lost"), "");
}

TEST(RouterSilence, EndsAStreamThatHasBegun) {
  RouterOptions options = impatient();
  options.answer_s = 0.7;
  BegunStream stream(options);
  EXPECT_EQ(stream.client.read_until("error", 200), "");
  EXPECT_NE(stream.client.read_until("server_silent"), "");
  EXPECT_EQ(stream.routed.servers_up(), 1);
  EXPECT_THAT(stream.routed.get("/metrics").body, HasSubstr("ended_total{end=\"cut\"} 1\n"));
}

TEST(Router, LeavesAStreamThatSaysItGoesOnThoughItsServerTakesNothingNew) {
  BegunStream stream;
  stream.server.health_status = 503;
  EXPECT_TRUE(soon([&] { return stream.routed.servers_up() == 0; }));
  for (int i = 0; i < 8; ++i) {
    stream.held->post([&] { stream.held->write(":\n\n"); });
    EXPECT_NE(stream.client.read_until(":\n\n"), "");
    std::this_thread::sleep_for(std::chrono::milliseconds(60));
  }
  stream.held->post([&] {
    stream.held->write("data: two\n\n");
    stream.held->end();
  });
  EXPECT_NE(stream.client.read_until("data: two\n\n"), "");
}

TEST(Router, WaitsForAServerThatIsSlow) {
  PlayedUpstream server("one");
  std::shared_ptr<Responder> held;
  server.answer_with(
      [&](HttpRequest, std::shared_ptr<Responder> responder) { held = std::move(responder); });
  RoutedServers routed({server.url()});
  TestClient client(routed.port());
  client.send(request_text("POST", kAskedPath, kAskStream));
  ASSERT_TRUE(soon([&] { return server.asked() == 1; }));
  held->post([&] { held->begin({.content_type = "text/event-stream"}); });
  for (const char* piece : {"da", "ta: o", "ne\n", "\ndata: two\r\n\r\n", "data: three\n\n"}) {
    held->post([&, piece] { held->write(piece); });
    std::this_thread::sleep_for(std::chrono::milliseconds(30));
  }
  held->post([&] { held->end(); });
  EXPECT_EQ(client.read_response().body, "data: one\n\ndata: two\r\n\r\ndata: three\n\n");
  held = nullptr;
}

TEST(Router, GivesUpAtTheServerWhatItsClientGaveUp) {
  PlayedUpstream server("one");
  std::atomic<int> gone{0};
  server.answer_with([&](HttpRequest request, const std::shared_ptr<Responder>& responder) {
    responder->on_gone([&, keep = responder] { ++gone; });
    if (request.body == kAsk) return;
    responder->begin({.content_type = "text/event-stream"});
    responder->write("data: one\n\n");
  });
  RoutedServers routed({server.url()});
  {
    TestClient whole(routed.port()), stream(routed.port());
    whole.send(request_text("POST", kAskedPath, kAsk));
    stream.send(request_text("POST", kAskedPath, kAskStream));
    EXPECT_NE(stream.read_until("data: one\n\n"), "");
    ASSERT_TRUE(soon([&] { return server.asked() == 2; }));
  }
  EXPECT_TRUE(soon([&] { return gone == 2; }));
  EXPECT_TRUE(soon([&] { return routed.router().open_count() == 0; }));
  EXPECT_THAT(routed.get("/metrics").body, HasSubstr("ended_total{end=\"cancelled\"} 2"));
}

// A client that does not read: the server is read no further than what may be on the way, so that
// it is the server that gives up, and nothing piles up here.
TEST(Router, ReadsNoFasterThanItsClient) {
  PlayedUpstream server("one");
  std::atomic<int64_t> taken{0};
  std::atomic<bool> gone{false};
  const std::string event = "data: " + std::string(1000, 'x') + "\n\n";
  std::function<void(std::shared_ptr<Responder>)> more;
  more = [&](std::shared_ptr<Responder> responder) {
    if (!responder->write(event)) {
      gone = true;
      return;
    }
    taken += static_cast<int64_t>(event.size());
    Responder& one = *responder;
    one.when_sent([&, responder = std::move(responder)] {
      responder->post([&, responder] { more(responder); });
    });
  };
  server.answer_with([&](HttpRequest, std::shared_ptr<Responder> responder) {
    responder->on_gone([&] { gone = true; });
    responder->begin({.content_type = "text/event-stream"});
    more(std::move(responder));
  });
  HttpServerOptions http;
  http.write_timeout_ms = 600;
  RoutedServers routed({server.url()}, quick_router(), {}, http);
  TestClient client(routed.port());
  client.send(request_text("POST", kAskedPath, kAskStream));
  int64_t before = -1;
  while (before != taken) {  // until nothing moves any more
    before = taken;
    std::this_thread::sleep_for(std::chrono::milliseconds(80));
  }
  // Buffers of the kernel, four of them, and a window.
  EXPECT_LT(taken, 16 << 20);
  EXPECT_FALSE(gone);
  EXPECT_EQ(routed.post("/v1/nothing", "{}").status, 404) << "others are served";
  EXPECT_TRUE(soon([&] { return gone.load(); })) << "a client that takes nothing is given up";
}

// The same with a client that reads after all: it gets every byte.
TEST(Router, GivesAllToAClientThatIsSlow) {
  PlayedUpstream server("one");
  std::string all;
  for (int i = 0; i < 3000; ++i) {
    all += "data: " + std::to_string(i) + std::string(500, 'x') + "\n\n";
  }
  server.answer_with([&](HttpRequest, const std::shared_ptr<Responder>& responder) {
    responder->respond({.content_type = "text/event-stream", .body = all});
  });
  RoutedServers routed({server.url()});
  TestClient client(routed.port());
  client.send(request_text("POST", kAskedPath, kAskStream));
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  EXPECT_EQ(client.read_response().body, all);
}

}  // namespace
}  // namespace jige::api
