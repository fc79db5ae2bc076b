// What a router does where servers hang, say nothing or are slow, and where clients go or do not
// read.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <nlohmann/json.hpp>
#include <thread>

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

// A client that has had the first event of a stream, whose server says nothing more by itself.
struct BegunStream {
  BegunStream() {
    server.answer_with([this](HttpRequest, std::shared_ptr<Responder> responder) {
      held = std::move(responder);
      held->begin({.content_type = "text/event-stream"});
      held->write("data: one\n\n");
    });
    client.send(request_text("POST", kAskedPath, kAskStream));
    EXPECT_NE(client.read_until("data: one\n\n"), "");
  }
  static RouterOptions options() {
    RouterOptions options = quick_router();
    options.stalled_s = 0.2;
    return options;
  }

  std::shared_ptr<Responder> held;  // before its server, which ends first
  PlayedUpstream server{"one"};
  RoutedServers routed{{server.url()}, options()};
  TestClient client{routed.port()};
};

TEST(Router, GivesAStreamUpWhoseServerHangs) {
  BegunStream stream;
  EXPECT_EQ(stream.client.read_until("error", 150), "") << "it is slow, and that is all";
  stream.server.health_status = 503;
  EXPECT_NE(stream.client.read_until("server_lost"), "");
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
