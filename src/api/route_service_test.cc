#include "api/route_service.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <nlohmann/json.hpp>
#include <regex>
#include <thread>

#include "api/route_test_support.h"
#include "api/service_test_support.h"

namespace jige::api {
namespace {

using ::testing::AnyOf;
using testing::fetch;
using ::testing::HasSubstr;
using testing::json_of;
using testing::kAsk;
using testing::kAskStream;
using testing::masked;
using ::testing::Not;
using testing::PlayedUpstream;
using testing::quick_router;
using testing::request_text;
using testing::RoutedServers;
using testing::soon;
using testing::TestClient;
using testing::TestResponse;
using testing::TestServer;

// The head's lines but those of framing and of times.
std::string masked_head(const std::string& head) {
  std::string lines;
  for (size_t begin = 0; begin < head.size();) {
    const size_t end = std::min(head.find("\r\n", begin), head.size());
    const std::string line = head.substr(begin, end - begin);
    begin = end + 2;
    std::string lower = line;
    std::ranges::transform(lower, lower.begin(), [](unsigned char c) { return std::tolower(c); });
    if (lower.starts_with("date: ")) lower.resize(5);  // a second may end between two answers
    if (lower.starts_with("x-request-id: ")) lower.resize(13);
    // Times of an answer are of other lengths.
    if (lower.starts_with("x-jige-timing") || lower.starts_with("content-length")) continue;
    lines += masked(lower) + "\n";
  }
  return lines;
}

TEST(RouteService, GivesTheBytesThatTheServerGives) {
  TestServer server;
  RoutedServers routed({"http://127.0.0.1:" + std::to_string(server.port())});
  const std::string messages = R"("messages":[{"role":"user","content":"Hello there"}])";
  const std::pair<const char*, std::string> requests[] = {
      {"/v1/completions", R"({"prompt":"Once upon","seed":3,"max_tokens":9,"ignore_eos":true)"},
      {"/v1/completions", R"({"prompt":"Once upon","seed":3,"max_tokens":4,"n":2,"logprobs":2)"},
      {"/v1/chat/completions", "{" + messages + R"(,"seed":5,"max_tokens":9)"},
      {"/v1/responses", R"({"input":"Hello there","temperature":0,"max_output_tokens":9)"},
      {"/v1/messages", "{" + messages + R"(,"temperature":0,"max_tokens":9)"},
      {"/v1/messages/count_tokens", "{" + messages},
      {"/tokenize", R"({"prompt":"Once upon a time")"},
      {"/detokenize", R"({"tokens":[5,6,7])"},
      {"/v1/embeddings", R"({"input":"no vectors here")"},
      {"/v1/rerank", R"({"query":"no","documents":["scores here"])"},
      {"/v2/rerank", R"({"query":"no","documents":["scores here"])"},
      {"/v1/completions", R"({"prompt":"x","temperature":7)"},
      {"/v1/messages", R"({"max_tokens":-1)"},
      {"/v1/completions", R"({"prompt":)"}};
  for (const auto& [path, begin] : requests) {
    for (const char* end : {"}", R"(,"stream":true})"}) {
      SCOPED_TRACE(std::string(path) + " " + begin + end);
      const TestResponse direct = server.post(path, begin + end);
      const TestResponse through = routed.post(path, begin + end);
      EXPECT_EQ(through.status, direct.status);
      EXPECT_EQ(masked(through.body), masked(direct.body));
      EXPECT_EQ(masked_head(through.head), masked_head(direct.head));
    }
  }
  EXPECT_EQ(routed.post("/v1/completions", kAsk, "Content-Encoding: gzip\r\n").body,
            server.post("/v1/completions", kAsk, "Content-Encoding: gzip\r\n").body);
  EXPECT_EQ(routed.get("/v1/completions").body, server.get("/v1/completions").body);
  EXPECT_EQ(routed.get("/nothing").body, server.get("/nothing").body);
  EXPECT_EQ(masked(routed.get("/v1/models").body), masked(server.get("/v1/models").body));
  EXPECT_EQ(masked(routed.get("/v1/models/tiny").body), masked(server.get("/v1/models/tiny").body));
  EXPECT_EQ(routed.get("/v1/models/none").status, 404);
}

TEST(RouteService, PassesFieldsOnButSecretsAndThoseOfTheConnection) {
  PlayedUpstream server("one");
  server.answer_with([](HttpRequest, const auto& responder) {
    responder->respond({.status = 418,
                        .content_type = "text/x-odd",
                        .headers = {{"X-Odd", "yes"}, {"Retry-After", "9"}},
                        .body = "odd"});
  });
  RoutedServers routed({server.url()}, quick_router(), {.keys = ApiKeys({"client-key-1"})}, {},
                       {{server.url(), "the server's own key"}});
  EXPECT_EQ(routed.post("/v1/completions", kAsk).status, 401);
  EXPECT_EQ(routed.get("/metrics").status, 401);
  EXPECT_EQ(routed.get("/health").status, 200);
  const TestResponse answer = routed.post(
      "/v1/completions?beta=true", kAsk,
      "Authorization: Bearer client-key-1\r\nX-Api-Key: client-key-1\r\nAnthropic-Version: 7\r\n"
      "Cookie: secret\r\nConnection: keep-alive\r\n");
  EXPECT_EQ(answer.status, 418);
  EXPECT_EQ(answer.body, "odd");
  EXPECT_EQ(answer.field("Content-Type"), "text/x-odd");
  EXPECT_EQ(answer.field("X-Odd"), "yes");
  const HttpRequest asked = server.last();
  EXPECT_EQ(asked.body, kAsk);
  EXPECT_EQ(asked.query, "beta=true");
  EXPECT_EQ(asked.header("Authorization"), "Bearer the server's own key");
  EXPECT_EQ(std::ranges::count(asked.headers, "Authorization", &HttpHeader::name), 1);
  EXPECT_EQ(asked.header("Anthropic-Version"), "7");
  EXPECT_EQ(asked.header("X-Api-Key"), "");
  EXPECT_EQ(asked.header("Cookie"), "");
}

// Each server gets its own key, in probes and requests, and no other's; a new one from the next
// request on, on connections that are kept, too.
TEST(RouteService, GivesEachServerItsOwnKey) {
  PlayedUpstream one("one"), two("two"), three("three");
  RouterOptions options = quick_router();
  options.policy.rule = plan::RouteRule::kRoundRobin;
  const std::vector<std::string> urls = {one.url(), two.url(), three.url()};
  RoutedServers routed(urls, options, {}, {}, {{one.url(), "key-1"}, {two.url(), "key-2"}});
  const auto ask_all = [&] {
    for (int i = 0; i < 3; ++i) EXPECT_EQ(routed.post("/v1/completions", kAsk).status, 200);
  };
  ask_all();
  EXPECT_EQ(one.last().header("Authorization"), "Bearer key-1");
  EXPECT_EQ(two.last().header("Authorization"), "Bearer key-2");
  EXPECT_EQ(three.last().header("Authorization"), "");
  EXPECT_EQ(one.probe_key(), "Bearer key-1");
  EXPECT_EQ(two.probe_key(), "Bearer key-2");
  EXPECT_EQ(three.probe_key(), "");
  routed.set_servers(urls, {{one.url(), "key-1"}, {two.url(), "key-3"}});
  ask_all();
  EXPECT_EQ(one.last().header("Authorization"), "Bearer key-1");
  EXPECT_EQ(two.last().header("Authorization"), "Bearer key-3");
  EXPECT_TRUE(soon([&] { return two.probe_key() == "Bearer key-3"; }));
  for (const char* path : {"/top", "/metrics"}) {
    EXPECT_THAT(routed.get(path).body, Not(HasSubstr("key-"))) << path;
  }
}

TEST(RouteService, AsksTheServerThatHasTheModel) {
  PlayedUpstream one("one", {"base", "poet"}), two("two", {"base", "coder"});
  RoutedServers routed({one.url(), two.url()});
  const auto asked = [&](const std::string& model) {
    return json_of(
        routed.post("/v1/completions", R"({"prompt":"x","model":")" + model + "\"}").body);
  };
  for (int i = 0; i < 4; ++i) {
    EXPECT_EQ(asked("poet")["from"], "one");
    EXPECT_EQ(asked("coder")["from"], "two");
  }
  const Json unknown = asked("none");
  EXPECT_EQ(unknown["error"]["code"], "model_not_found");
  EXPECT_EQ(unknown["error"]["message"], "the model \"none\" is not served here");
  const Json models = json_of(routed.get("/v1/models").body)["data"];
  ASSERT_EQ(models.size(), 3U);
  EXPECT_EQ(models[0]["id"], "base");
  EXPECT_EQ(models[0]["at"], "one");
  two.set_models({"base", "painter"});  // an adapter was loaded
  EXPECT_TRUE(soon([&] { return asked("painter").contains("from"); }));
}

TEST(RouteService, AsksForTheFirstServersModelWhereNoneIsNamed) {
  PlayedUpstream one("one", {"large"}), two("two", {"small"});
  RoutedServers routed({one.url(), two.url()});
  for (int i = 0; i < 4; ++i) {
    EXPECT_EQ(json_of(routed.post("/v1/completions", kAsk).body)["from"], "one");
  }
}

TEST(RouteService, KeepsConversationsWhereTheyWere) {
  PlayedUpstream one("one"), two("two");
  RoutedServers routed({one.url(), two.url()});
  std::map<std::string, int> counts;
  for (int user = 0; user < 4; ++user) {
    std::string history(static_cast<size_t>(600), static_cast<char>('a' + user));
    std::string home;
    for (int turn = 0; turn < 4; ++turn) {
      const Json body{{"messages", {{{"role", "user"}, {"content", history}}}}};
      const std::string from =
          json_of(routed.post("/v1/chat/completions", body.dump()).body)["from"];
      if (turn == 0) home = from;
      EXPECT_EQ(from, home) << user << ", turn " << turn;
      history += std::string(300, 'z');
    }
    ++counts[home];
  }
  EXPECT_EQ(counts["one"], 2);
  EXPECT_EQ(counts["two"], 2);
  const Json top = routed.top();
  EXPECT_GT(top["servers"][0]["known_tokens_total"].get<int64_t>(), 500);
  EXPECT_EQ(top["servers"][0]["requests_total"], 8);
}

TEST(RouteService, TellsOfItsServers) {
  PlayedUpstream one("one"), two("two");
  two.answer_with(testing::refuse_with(429));
  RoutedServers routed({one.url(), two.url()});
  for (int i = 0; i < 6; ++i) EXPECT_EQ(routed.post("/v1/completions", kAsk).status, 200);
  const std::string metrics = routed.get("/metrics").body;
  for (const std::string& line :
       {"jige_route:server_up{server=\"" + one.url() + "\"} 1",
        "jige_route:failures_total{server=\"" + one.url() + "\",kind=\"refused\"} 0",
        std::string("jige_route:ended_total{end=\"answered\"} 6"),
        std::string("jige:http_requests_total{handler=\"/v1/completions\",status=\"200\"} 6"),
        "jige_route:first_byte_seconds_count{server=\"" + one.url() + "\"} 6",
        "jige_route:first_byte_seconds_bucket{server=\"" + two.url() + "\",le=\"+Inf\"} "}) {
    EXPECT_THAT(metrics, HasSubstr(line));
  }
  EXPECT_THAT(metrics, Not(HasSubstr("retries_total{server=\"" + one.url() + "\"} 0")));
  EXPECT_THAT(metrics, Not(HasSubstr("{server=\"" + two.url() + "\",kind=\"refused\"} 0")));
  const Json top = routed.top();
  EXPECT_EQ(top["servers"][0]["state"], "up");
  EXPECT_EQ(top["policy"], "prefix");
  EXPECT_EQ(routed.get("/version").status, 200);
}

// The first has plenty to do for others: only when that is over does it get its share.
TEST(RouteService, GoesAroundServersThatAreBusyForOthers) {
  PlayedUpstream one("one"), two("two");
  one.set_metrics("vllm:num_requests_running{engine=\"0\"} 20.0\nvllm:num_requests_waiting 9.0\n");
  RoutedServers routed({one.url(), two.url()});
  const auto others = [&] { return routed.top()["servers"][0]["other_requests"].get<double>(); };
  ASSERT_TRUE(soon([&] { return others() > 28; }));
  const auto from = [&] { return json_of(routed.post("/v1/completions", kAsk).body)["from"]; };
  for (int i = 0; i < 4; ++i) EXPECT_EQ(from(), "two");
  EXPECT_THAT(routed.get("/metrics").body,
              HasSubstr("jige_route:server_other_requests{server=\"" + two.url() + "\"} 0\n"));
  one.set_metrics("vllm:num_requests_running{engine=\"0\"} 0\n");
  ASSERT_TRUE(soon([&] { return others() < 1e-3; }));
  EXPECT_EQ(from(), "one") << "it has been idle longest";
  EXPECT_EQ(two.metrics_asked(), 1) << "who does not tell is not asked again soon";
}

// What it tells of is what came from here.
TEST(RouteService, DoesNotTakeItsOwnRequestsForOthers) {
  PlayedUpstream server("one");
  std::vector<std::shared_ptr<Responder>> held;
  std::mutex mutex;
  server.answer_with([&](HttpRequest, std::shared_ptr<Responder> responder) {
    const std::lock_guard lock(mutex);
    held.push_back(std::move(responder));
  });
  server.set_metrics("jige:num_requests_running 3\n");
  RoutedServers routed({server.url()});
  ASSERT_TRUE(soon([&] { return routed.top()["servers"][0]["other_requests"] == 3; }));
  TestClient client(routed.port());
  client.send(request_text("POST", "/v1/completions", R"({"prompt":["x","y","z"]})"));
  ASSERT_TRUE(soon([&] { return server.asked() == 1; }));
  EXPECT_TRUE(soon([&] { return routed.top()["servers"][0]["other_requests"] < 0.1; }));
  const std::lock_guard lock(mutex);
  held[0]->post([responder = held[0]] { responder->respond({.body = "done"}); });
  EXPECT_EQ(client.read_response().body, "done");
  held.clear();
}

// Streams, a token each few milliseconds.
PlayedUpstream::Answer stream_at(std::chrono::microseconds token_time) {
  return [token_time](HttpRequest, std::shared_ptr<Responder> responder) {
    std::thread([token_time, responder = std::move(responder)] {
      responder->post([responder] { responder->begin({.content_type = "text/event-stream"}); });
      for (int i = 0; i < 24; ++i) {
        std::this_thread::sleep_for(token_time);
        responder->post([responder] { responder->write("data: x\n\n"); });
      }
      responder->post([responder] { responder->end(); });
    }).detach();
  };
}

// The server is asked what it has when nothing of the router is there, and tells it when two of its
// requests are.
TEST(RouteService, DoesNotTakeRequestsForOthersThatCameBetweenQuestionAndAnswer) {
  std::atomic<bool> hold{false};
  std::atomic<int> at_work{0}, probes_held{0}, told{0};
  std::vector<std::shared_ptr<Responder>> probes, works;
  const auto server = testing::value_of(
      HttpServer::listen({}, [&](const HttpRequest& request, std::shared_ptr<Responder> to) {
        if (request.path == "/health") {
          if (!hold) return to->respond({.body = "{}"});
          probes.push_back(std::move(to));
          ++probes_held;
          return;
        }
        if (request.path == "/v1/models") {
          return to->respond({.body = R"({"data":[{"id":"tiny"}]})"});
        }
        if (request.path == "/metrics") {
          const std::string body = "jige:num_requests_running " + std::to_string(at_work) + "\n";
          to->respond({.body = body});
          if (at_work > 0) ++told;
          return;
        }
        works.push_back(std::move(to));
        ++at_work;
      }));
  RouterOptions options = quick_router();
  options.probe_answer_s = 100;
  {
    RoutedServers routed({"http://127.0.0.1:" + std::to_string(server->port())}, options);
    hold = true;
    ASSERT_TRUE(soon([&] { return probes_held == 1; }));
    TestClient first(routed.port()), second(routed.port());
    for (TestClient* client : {&first, &second}) {
      client->send(request_text("POST", "/v1/completions", kAsk));
    }
    ASSERT_TRUE(soon([&] { return at_work == 2; }));
    probes.front()->post([&] { probes.front()->respond({.body = "{}"}); });
    // The next probe waits, so that what was told is what is believed.
    ASSERT_TRUE(soon([&] { return told == 1 && probes_held == 2; }));
    EXPECT_EQ(routed.top()["servers"][0]["other_requests"], 0);
  }
  server->stop(0);
}

TEST(RouteService, GivesMoreToAServerThatIsFaster) {
  PlayedUpstream slow("slow"), fast("fast");
  slow.answer_with(stream_at(std::chrono::milliseconds(8)));
  fast.answer_with(stream_at(std::chrono::milliseconds(2)));
  RouterOptions options = quick_router();
  options.policy.rule = plan::RouteRule::kLeastLoaded;
  RoutedServers routed({slow.url(), fast.url()}, options);
  std::vector<std::thread> clients;
  for (int i = 0; i < 4; ++i) {
    clients.emplace_back([&] {
      for (int k = 0; k < 10; ++k) {
        EXPECT_EQ(routed.post("/v1/completions", kAskStream).status, 200);
      }
    });
  }
  for (std::thread& client : clients) client.join();
  const Json servers = routed.top()["servers"];
  EXPECT_GT(servers[1]["answer_speed"].get<double>(),
            1.5 * servers[0]["answer_speed"].get<double>())
      << servers;
  EXPECT_GT(servers[1]["requests_total"].get<int64_t>(),
            servers[0]["requests_total"].get<int64_t>())
      << servers;
  EXPECT_THAT(routed.get("/metrics").body,
              HasSubstr("jige_route:server_answer_speed{server=\"" + fast.url() + "\"} "));
}

TEST(RouteService, IsUnwellWithoutServers) {
  RoutedServers routed({});
  EXPECT_EQ(routed.get("/health").status, 503);
  const TestResponse answer = routed.post("/v1/messages", R"({"model":"tiny"})");
  EXPECT_EQ(answer.status, 503);
  EXPECT_EQ(json_of(answer.body)["type"], "error") << "in the form of its route";
}

TEST(RouteService, LetsWhoLeavesFinishAndGivesItNothingMore) {
  PlayedUpstream one("one"), two("two");
  std::shared_ptr<Responder> held;
  one.answer_with([&](HttpRequest, std::shared_ptr<Responder> responder) {
    held = std::move(responder);
    held->begin({.content_type = "text/event-stream"});
    held->write("data: first\n\n");
  });
  RoutedServers routed({one.url()});
  TestClient client(routed.port());
  client.send(request_text("POST", "/v1/completions", kAskStream));
  EXPECT_NE(client.read_until("data: first\n\n"), "");
  routed.set_servers({two.url()});
  EXPECT_EQ(json_of(routed.post("/v1/completions", kAsk).body)["from"], "two");
  Json top = routed.top();
  EXPECT_EQ(top["servers"].size(), 2U);
  EXPECT_EQ(top["servers"][0]["state"], "leaving");
  EXPECT_EQ(top["servers"][0]["requests"], 1);
  held->post([&] {
    held->write("data: last\n\n");
    held->end();
    held = nullptr;
  });
  EXPECT_NE(client.read_until("data: last\n\n"), "");
  EXPECT_TRUE(soon([&] { return routed.top()["servers"].size() == 1; }));
  EXPECT_EQ(one.asked(), 1);
}

// Its last request goes elsewhere: it is gone, and nobody looks for it.
TEST(RouteService, ForgetsWhoLeftWhenItsLastRequestGoesElsewhere) {
  PlayedUpstream one("one"), two("two");
  std::shared_ptr<Responder> first, second;
  one.answer_with(
      [&](HttpRequest, std::shared_ptr<Responder> responder) { first = std::move(responder); });
  two.answer_with(
      [&](HttpRequest, std::shared_ptr<Responder> responder) { second = std::move(responder); });
  RoutedServers routed({one.url()});
  TestClient client(routed.port());
  client.send(request_text("POST", "/v1/completions", kAsk));
  ASSERT_TRUE(soon([&] { return one.asked() == 1; }));
  routed.set_servers({two.url()});
  first->post([&] { first->respond({.status = 503, .body = "draining"}); });
  ASSERT_TRUE(soon([&] { return two.asked() == 1; }));
  std::this_thread::sleep_for(std::chrono::milliseconds(60));  // a few looks around
  EXPECT_EQ(routed.top()["servers"].size(), 1U);
  second->post([&] { second->respond({.body = "done"}); });
  EXPECT_EQ(client.read_response().body, "done");
  first = second = nullptr;
}

TEST(RouteService, LetsRequestsWaitForRoomAndRefusesWhatIsTooMuch) {
  PlayedUpstream server("one");
  std::vector<std::shared_ptr<Responder>> held;
  std::mutex mutex;
  server.answer_with([&](HttpRequest, std::shared_ptr<Responder> responder) {
    const std::lock_guard lock(mutex);
    held.push_back(std::move(responder));
  });
  RouterOptions options = quick_router();
  options.policy.requests_max = 1;
  options.policy.waiting_max = 1;
  RoutedServers routed({server.url()}, options);
  TestClient first(routed.port()), second(routed.port());
  first.send(request_text("POST", "/v1/completions", kAsk));
  ASSERT_TRUE(soon([&] { return server.asked() == 1; }));
  second.send(request_text("POST", "/v1/completions", kAsk));
  ASSERT_TRUE(soon([&] { return routed.top()["waiting_requests"] == 1; }));
  const TestResponse refused = routed.post("/v1/completions", kAsk);
  EXPECT_EQ(refused.status, 429);
  EXPECT_EQ(refused.field("Retry-After"), "2");
  const auto answer = [&](size_t number) {
    const std::lock_guard lock(mutex);
    held[number]->post([responder = held[number]] { responder->respond({.body = "done"}); });
  };
  answer(0);
  EXPECT_EQ(first.read_response().body, "done");
  ASSERT_TRUE(soon([&] { return server.asked() == 2; }));
  answer(1);
  EXPECT_EQ(second.read_response().body, "done");
  held.clear();
}

TEST(RouteService, RefusesBodiesThatAreTooMuchTogether) {
  PlayedUpstream server("one");
  std::shared_ptr<Responder> held;
  server.answer_with(
      [&](HttpRequest, std::shared_ptr<Responder> responder) { held = std::move(responder); });
  RouterOptions options = quick_router();
  options.bodies_bytes_max = 100'000;
  RoutedServers routed({server.url()}, options);
  const std::string body = Json{{"prompt", std::string(60'000, 'x')}}.dump();
  TestClient first(routed.port());
  first.send(request_text("POST", "/v1/completions", body));
  ASSERT_TRUE(soon([&] { return server.asked() == 1; }));
  EXPECT_EQ(routed.post("/v1/completions", body).status, 429);
  held->post([&] { held->respond({.body = "done"}); });
  EXPECT_EQ(first.read_response().body, "done");
  server.answer_with(nullptr);
  EXPECT_EQ(routed.post("/v1/completions", body).status, 200) << "there is room again";
  held = nullptr;
}

TEST(RouteService, DrainsAsAServerDoes) {
  PlayedUpstream server("one");
  RoutedServers routed({server.url()});
  routed.service().begin_drain();
  EXPECT_EQ(json_of(routed.post("/v1/completions", kAsk).body)["error"]["code"], "draining");
  EXPECT_EQ(routed.get("/ready").status, 503);
  EXPECT_EQ(routed.get("/health").status, 200);
  EXPECT_EQ(routed.router().open_count(), 0);
}

}  // namespace
}  // namespace jige::api
