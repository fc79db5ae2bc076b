// Many clients at once through a router whose thread is late at random, in front of servers that
// refuse, break and leave: every client gets the one right answer, or is told clearly.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <nlohmann/json.hpp>
#include <thread>

#include "api/route_test_support.h"
#include "base/rng.h"

namespace jige::api {
namespace {

using testing::json_of;
using testing::PlayedUpstream;
using testing::quick_router;
using testing::request_text;
using testing::RoutedServers;
using testing::soon;
using testing::TestClient;
using testing::TestResponse;

// Says back what it was asked, in as many events as the number of the request has it; now and then
// it refuses, or breaks before or behind the first event.
class EchoServers {
 public:
  explicit EchoServers(uint64_t seed) : seed_(seed) {}

  PlayedUpstream::Answer answer() {
    return [this](const HttpRequest& request, const std::shared_ptr<Responder>& responder) {
      Rng rng(derive_key(seed_, "echo", next_++));
      const uint64_t what = rng.below(20);
      const std::string number = json_of(request.body)["prompt"];
      if (what == 0) return responder->respond({.status = 429, .body = "full"});
      if (what == 1) {
        responder->begin({.content_type = "text/event-stream"});
        return;  // dropped: the connection ends
      }
      responder->begin({.content_type = "text/event-stream"});
      for (uint64_t i = 0; i < 1 + std::stoull(number) % 7; ++i) {
        responder->write("data: " + number + "\n\n");
        if (what == 2) return;
      }
      responder->write("data: [DONE]\n\n");
      responder->end();
    };
  }

 private:
  const uint64_t seed_;
  std::atomic<uint64_t> next_{0};
};

struct RaceEnds {
  std::atomic<int64_t> whole{0}, cut{0}, refused{0}, left{0};
};

void check_raced(uint64_t number, const TestResponse& answer, RaceEnds& ends) {
  if (answer.status != 200) {
    EXPECT_TRUE(answer.status == 429 || answer.status == 503) << answer.status << answer.body;
    ++ends.refused;
    return;
  }
  std::string expected;
  const std::string event = "data: " + std::to_string(number) + "\n\n";
  for (uint64_t i = 0; i < 1 + number % 7; ++i) expected += event;
  if (answer.body == expected + "data: [DONE]\n\n") {
    ++ends.whole;
    return;
  }
  // Whole events of this very request, and then the error.
  std::string rest = answer.body;
  EXPECT_TRUE(rest.starts_with(event)) << rest;
  while (rest.starts_with(event)) rest.erase(0, event.size());
  EXPECT_TRUE(rest.starts_with("data: {\"error\"")) << answer.body;
  ++ends.cut;
}

void run_racer(uint16_t port, uint64_t seed, int requests, RaceEnds& ends) {
  Rng rng(derive_key(seed, "client"));
  for (int i = 0; i < requests; ++i) {
    const uint64_t number = rng.below(1'000'000);
    TestClient client(port);
    client.send(request_text("POST", "/v1/completions",
                             R"({"stream":true,"prompt":")" + std::to_string(number) + "\"}"));
    if (rng.below(8) == 0) {
      std::this_thread::sleep_for(std::chrono::microseconds(rng.below(3000)));
      rng.below(2) == 0 ? client.reset() : client.close();
      ++ends.left;
      continue;
    }
    check_raced(number, client.read_response(), ends);
  }
}

// Gives how many requests had whole answers.
int64_t run_race(uint64_t seed) {
  EchoServers echo(seed);
  // Connections that are kept end at any time, also under a request that is on its way.
  HttpServerOptions http;
  http.idle_timeout_ms = 1;
  PlayedUpstream one("one"), two("two", {"tiny"}, http), three("three", {"tiny"}, http);
  for (PlayedUpstream* server : {&one, &two, &three}) server->answer_with(echo.answer());
  RouterOptions options = quick_router();
  options.policy.requests_max = 2;
  options.health.backoff_s = 0.02;
  std::atomic<uint64_t> turns{0};
  options.before_turn = [&] {
    Rng rng(derive_key(seed, "turn", turns++));
    if (rng.below(4) == 0) std::this_thread::sleep_for(std::chrono::microseconds(rng.below(2000)));
  };
  RaceEnds ends;
  {
    RoutedServers routed({one.url(), two.url(), three.url()}, options);
    std::vector<std::thread> clients;
    for (uint64_t i = 0; i < 6; ++i) {
      clients.emplace_back([&, i] { run_racer(routed.port(), seed * 100 + i, 25, ends); });
    }
    // Servers leave and come back meanwhile, and somebody looks on.
    Rng rng(derive_key(seed, "servers"));
    for (int i = 0; i < 6; ++i) {
      std::vector<HttpPeer> peers;
      const uint64_t stays = rng.below(3);
      uint64_t number = 0;
      for (const PlayedUpstream* server : {&one, &two, &three}) {
        if (number++ == stays || rng.below(2) > 0)
          peers.push_back(testing::value_of(HttpPeer::resolve(server->url())));
      }
      routed.router().set_servers(std::move(peers));
      EXPECT_EQ(routed.get("/metrics").status, 200);
      std::this_thread::sleep_for(std::chrono::milliseconds(rng.below(15)));
    }
    routed.set_servers({one.url(), two.url(), three.url()});
    for (std::thread& client : clients) client.join();
    EXPECT_TRUE(soon([&] { return routed.router().open_count() == 0; })) << routed.top();
    const Json top = routed.top();
    for (const Json& server : top["servers"]) EXPECT_EQ(server["requests"], 0);
  }
  EXPECT_EQ(ends.whole + ends.cut + ends.refused + ends.left, 150);
  return ends.whole;
}

TEST(RouterRace, EveryClientGetsItsOwnAnswer) {
  int64_t whole = 0;
  for (uint64_t seed = 0; seed < 3; ++seed) {
    SCOPED_TRACE(seed);
    whole += run_race(seed);
  }
  // How many of one race have them depends on what else the machine does.
  EXPECT_GT(whole, 20);
}

// It stops while everything is under way: nobody waits for ever, nothing is touched behind it.
TEST(RouterRace, StopsInTheMiddle) {
  EchoServers echo(9);
  PlayedUpstream one("one");
  one.answer_with(echo.answer());
  for (uint64_t seed = 0; seed < 3; ++seed) {
    RaceEnds ends;
    std::vector<std::thread> clients;
    {
      RoutedServers routed({one.url()});
      for (uint64_t i = 0; i < 4; ++i) {
        clients.emplace_back([port = routed.port(), seed, i] {
          for (int k = 0; k < 20; ++k) {
            TestClient client(port);
            client.send(request_text("POST", "/v1/completions", R"({"stream":true,"prompt":"7"})"));
            client.read_until("", 2000);
          }
        });
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(5 + 10 * static_cast<int>(seed)));
      if (seed == 1) routed.router().stop();
    }
    for (std::thread& client : clients) client.join();
  }
}

}  // namespace
}  // namespace jige::api
