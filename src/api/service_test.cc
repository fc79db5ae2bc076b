// The routes over sockets, with the engine behind them.
#include "api/service.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <limits>
#include <map>
#include <thread>

#include "api/service_test_support.h"

namespace jige::api {
namespace {

using testing::completion_body;
using testing::frames_of;
using ::testing::HasSubstr;
using testing::json_of;
using testing::request_text;
using testing::soon;
using testing::TestClient;
using testing::TestResponse;
using testing::TestServer;
using testing::text_of;

TEST(Service, CompletesTexts) {
  TestServer server;
  const TestResponse response = server.post("/v1/completions", completion_body(1, 20));
  ASSERT_EQ(response.status, 200) << response.body;
  const Json answer = json_of(response.body);
  EXPECT_EQ(answer["object"], "text_completion");
  EXPECT_EQ(answer["model"], "tiny");
  EXPECT_EQ(answer["choices"][0]["finish_reason"], "length");
  EXPECT_EQ(answer["usage"]["prompt_tokens"], 16);
  EXPECT_EQ(answer["usage"]["completion_tokens"], 20);
  EXPECT_THAT(response.field("x-jige-timing"), HasSubstr("queue_ms="));
  EXPECT_EQ(response.field("x-request-id"), answer["id"].get<std::string>());
  const std::string again = text_of(server.post("/v1/completions", completion_body(1, 20)));
  EXPECT_EQ(again, text_of(response)) << "the same seed";
  EXPECT_NE(text_of(server.post("/v1/completions", completion_body(2, 20))), again);
  EXPECT_TRUE(soon([&] { return server.idle(); }));
}

TEST(Service, ConstrainsAnswersWholeAndStreamed) {
  TestServer server;
  const std::string members =
      R"(,"response_format":{"type":"json_schema","json_schema":{"name":"list","schema":
      {"type":"array","items":{"enum":["red","green",3]},"minItems":1,"maxItems":3}}})";
  for (int seed = 0; seed < 5; ++seed) {
    const TestResponse whole = server.post("/v1/completions", completion_body(seed, 60, members));
    ASSERT_EQ(whole.status, 200) << whole.body;
    const Json answer = json_of(whole.body);
    EXPECT_EQ(answer["choices"][0]["finish_reason"], "stop");
    const Json list = json_of(text_of(whole));
    EXPECT_TRUE(list.is_array() && !list.empty() && list.size() <= 3) << list;
    const TestResponse streamed =
        server.post("/v1/completions", completion_body(seed, 60, members + R"(,"stream":true)"));
    std::string text, finish;
    for (const Json& frame : frames_of(streamed.body)) {
      text += frame["choices"][0]["text"].get<std::string>();
      const Json& reason = frame["choices"][0]["finish_reason"];
      if (reason.is_string()) finish = reason;
    }
    EXPECT_EQ(text, text_of(whole));
    EXPECT_EQ(finish, "stop");
  }
  // The tokenizer has no closing brace.
  const TestResponse failed = server.post(
      "/v1/chat/completions",
      R"({"messages":[{"role":"user","content":"a"}],"guided_json":{"properties":{}}})");
  EXPECT_EQ(failed.status, 400) << failed.body;
  EXPECT_THAT(failed.body, HasSubstr("no token of the model's vocabulary"));
  EXPECT_TRUE(soon([&] { return server.idle(); }));
}

TEST(Service, StreamsWhatItWouldHaveSentWhole) {
  TestServer server;
  const std::string whole = text_of(server.post("/v1/completions", completion_body(3, 40)));
  const TestResponse streamed = server.post(
      "/v1/completions",
      completion_body(3, 40, R"(,"stream":true,"stream_options":{"include_usage":true})"));
  EXPECT_EQ(streamed.field("Content-Type"), "text/event-stream; charset=utf-8");
  std::string text;
  const std::vector<Json> frames = frames_of(streamed.body);
  for (const Json& frame : frames) {
    if (!frame["choices"].empty()) text += frame["choices"][0]["text"].get<std::string>();
  }
  EXPECT_EQ(text, whole);
  EXPECT_EQ(frames.back()["usage"]["completion_tokens"], 40);
  EXPECT_EQ(frames[frames.size() - 2]["choices"][0]["finish_reason"], "length");
}

TEST(Service, AnswersChats) {
  TestServer server;
  const std::string body =
      R"({"model":"tiny","messages":[{"role":"user","content":"Hello"}],"max_tokens":8,"n":2,)"
      R"("seed":5,"logprobs":true,"top_logprobs":2,"ignore_eos":true)";
  const TestResponse whole = server.post("/v1/chat/completions", body + "}");
  ASSERT_EQ(whole.status, 200) << whole.body;
  const Json answer = json_of(whole.body);
  ASSERT_EQ(answer["choices"].size(), 2u);
  EXPECT_NE(answer["choices"][0]["message"]["content"], answer["choices"][1]["message"]["content"]);
  const Json& logprobs = answer["choices"][0]["logprobs"]["content"];
  ASSERT_EQ(logprobs.size(), 8u);
  std::string joined;
  for (const Json& entry : logprobs) {
    joined += entry["token"].get<std::string>();
    EXPECT_EQ(entry["top_logprobs"].size(), 2u);
    EXPECT_LE(entry["logprob"].get<double>(), 0);
  }
  EXPECT_EQ(joined, answer["choices"][0]["message"]["content"].get<std::string>());
  const TestResponse streamed = server.post("/v1/chat/completions", body + R"(,"stream":true})");
  std::map<int, std::string> texts;
  for (const Json& frame : frames_of(streamed.body)) {
    const Json& choice = frame["choices"][0];
    if (choice["delta"].contains("content")) {
      texts[choice["index"].get<int>()] += choice["delta"]["content"].get<std::string>();
    }
  }
  EXPECT_EQ(texts[0], answer["choices"][0]["message"]["content"].get<std::string>());
  EXPECT_EQ(texts[1], answer["choices"][1]["message"]["content"].get<std::string>());
}

TEST(Service, StopsAtStopTextsAndReportsThem) {
  TestServer server;
  const std::string whole = text_of(server.post("/v1/completions", completion_body(4, 60)));
  const std::string stop = whole.substr(20, 2);
  const TestResponse response =
      server.post("/v1/completions", completion_body(4, 60, ",\"stop\":" + Json(stop).dump()));
  const Json choice = json_of(response.body)["choices"][0];
  EXPECT_EQ(choice["finish_reason"], "stop");
  EXPECT_EQ(choice["stop_reason"], stop);
  EXPECT_EQ(choice["text"], whole.substr(0, whole.find(stop)));
}

TEST(Service, AnswersManyAtOnceAsIfAlone) {
  TestServer server({.iteration_ms = 1});
  constexpr int kClients = 12;
  std::vector<std::string> alone, together(kClients);
  for (int i = 0; i < kClients; ++i) {
    alone.push_back(text_of(server.post("/v1/completions", completion_body(i, 10 + i))));
  }
  std::vector<std::thread> clients;
  for (int i = 0; i < kClients; ++i) {
    clients.emplace_back([&, i] {
      const TestResponse streamed =
          server.post("/v1/completions", completion_body(i, 10 + i, R"(,"stream":true)"));
      for (const Json& frame : frames_of(streamed.body)) {
        together[static_cast<size_t>(i)] += frame["choices"][0]["text"].get<std::string>();
      }
    });
  }
  for (std::thread& client : clients) client.join();
  EXPECT_EQ(together, alone);
  EXPECT_TRUE(soon([&] { return server.idle(); }));
}

TEST(Service, ClientsThatGoFreeTheirBlocksAndHurtNobody) {
  TestServer server({.iteration_ms = 4});
  const std::string expected = text_of(server.post("/v1/completions", completion_body(7, 60)));
  server.iterations().allow(0);
  TestClient neighbour(server.port());
  neighbour.send(request_text("POST", "/v1/completions", completion_body(7, 60)));
  server.iterations().wait_until_held();
  TestClient stream(server.port()), whole(server.port()), half(server.port());
  stream.send(
      request_text("POST", "/v1/completions", completion_body(8, 110, R"(,"stream":true)")));
  whole.send(request_text("POST", "/v1/completions", completion_body(9, 110, R"(,"n":4)")));
  half.send(request_text("POST", "/v1/completions", completion_body(9, 110)));
  ASSERT_TRUE(soon([&] { return server.engine().status().waiting_requests == 3; }));
  server.iterations().allow(8);
  EXPECT_NE(stream.read_until("data: {"), "");
  server.iterations().wait_until_held();
  EXPECT_EQ(server.engine().status().running_sequences, 7);
  stream.reset();
  whole.close();
  half.shutdown_write();
  server.iterations().open();
  const auto cancelled = [&] {
    constexpr auto kCancelled = static_cast<size_t>(serve::FinishReason::kCancelled);
    return server.engine().status().counters.requests_finished[kCancelled];
  };
  EXPECT_TRUE(soon([&] { return cancelled() == 3; }));
  EXPECT_EQ(text_of(neighbour.read_response()), expected);
  EXPECT_TRUE(soon([&] { return server.idle(); }));
}

TEST(Service, ClientsMayGoBeforeTheirRequestBegins) {
  TestServer server({.engine = {.batch_requests_max = 1}});
  server.iterations().allow(0);
  TestClient first(server.port());
  first.send(request_text("POST", "/v1/completions", completion_body(1, 60)));
  server.iterations().wait_until_held();
  for (int i = 0; i < 10; ++i) {
    TestClient gone(server.port());
    gone.send(request_text("POST", "/v1/completions", completion_body(2, 100)));
    gone.reset();
  }
  server.iterations().open();
  EXPECT_EQ(first.read_response().status, 200);
  EXPECT_TRUE(soon([&] { return server.idle(); }));
}

TEST(Service, ClientsThatDoNotReadAreGivenUpAndHurtNobody) {
  TestServer server({.http = {.output_bytes_max = 20'000}, .iteration_ms = 2});
  const std::string expected = text_of(server.post("/v1/completions", completion_body(7, 60)));
  TestClient slow(server.port(), 4096);
  server.iterations().allow(3);
  slow.send(request_text("POST", "/v1/completions",
                         completion_body(8, 110, R"(,"stream":true,"n":8,"logprobs":20)")));
  server.iterations().wait_until_held();
  EXPECT_EQ(server.engine().status().running_sequences, 8);
  server.iterations().open();
  EXPECT_EQ(text_of(server.post("/v1/completions", completion_body(7, 60))), expected);
  EXPECT_TRUE(soon([&] { return server.idle(); }));
  EXPECT_THAT(server.get("/metrics").body,
              HasSubstr("jige:http_slow_readers_dropped_total{model_name=\"tiny\"} 1\n"));
}

TEST(Service, RefusesBeyondTheQueue) {
  TestServer server({.engine = {.batch_requests_max = 1, .waiting_requests_max = 2}});
  server.iterations().allow(0);
  std::vector<TestClient> clients;
  for (int i = 0; i < 3; ++i) {
    clients.emplace_back(server.port());
    clients.back().send(request_text("POST", "/v1/completions", completion_body(i, 40)));
    if (i == 0) server.iterations().wait_until_held();  // it runs, so it waits no more
  }
  ASSERT_TRUE(soon([&] { return server.engine().status().waiting_requests == 2; }));
  // Not even read: the body is no JSON.
  const TestResponse refused = server.post("/v1/completions", "this is no JSON");
  EXPECT_EQ(refused.status, 429);
  EXPECT_GE(std::stoi(refused.field("Retry-After")), 1);
  EXPECT_EQ(json_of(refused.body)["error"]["type"], "rate_limit_error");
  EXPECT_EQ(server.post("/tokenize", R"({"prompt":"a"})").status, 200) << "needs no engine";
  EXPECT_EQ(server.engine().status().counters.requests_refused, 1);
  server.iterations().open();
  for (TestClient& client : clients) EXPECT_EQ(client.read_response().status, 200);
  EXPECT_EQ(server.post("/v1/completions", completion_body(1, 1)).status, 200);
}

TEST(Service, RefusesWhatCouldNeverRun) {
  TestServer server({.kv_blocks = 8});
  const TestResponse response =
      server.post("/v1/completions", completion_body(1, 100, R"(,"n":9)"));
  EXPECT_EQ(response.status, 400);
  const Json error = json_of(response.body)["error"];
  EXPECT_THAT(error["message"].get<std::string>(), HasSubstr("fewer choices"));
  EXPECT_EQ(error["param"], "n");
}

TEST(Service, RefusesWhatTheQueueCouldNeverHold) {
  TestServer server({.engine = {.waiting_requests_max = 3, .waiting_prompt_tokens_max = 8}});
  const auto refusal = [&](const std::string& prompts) {
    const TestResponse response =
        server.post("/v1/completions", R"({"max_tokens":1,"prompt":)" + prompts + "}");
    EXPECT_EQ(response.status, 400);
    EXPECT_EQ(json_of(response.body)["error"]["param"], "prompt");
    return json_of(response.body)["error"]["message"].get<std::string>();
  };
  EXPECT_THAT(refusal(R"(["a","b","c","d"])"),
              AllOf(HasSubstr("4 prompts"), HasSubstr("holds 3"), HasSubstr("--queue-requests")));
  EXPECT_THAT(refusal("[[5,5,5,5,5],[5,5,5,5]]"),
              AllOf(HasSubstr("9 tokens"), HasSubstr("holds 8"), HasSubstr("--queue-tokens")));
  EXPECT_EQ(
      server.post("/v1/completions", R"({"max_tokens":1,"prompt":[5,5,5,5,5,5,5,5,5]})").status,
      200);
}

TEST(Service, AsksForTheKeyOnEveryRouteButHealth) {
  TestServer server({.service = {.keys = ApiKeys({"a-secret-key"})}});
  const std::vector<std::pair<std::string, std::string>> routes = {
      {"GET", "/ready"},           {"GET", "/version"},
      {"GET", "/metrics"},         {"GET", "/top"},
      {"GET", "/v1/models"},       {"GET", "/v1/models/tiny"},
      {"POST", "/tokenize"},       {"POST", "/detokenize"},
      {"POST", "/v1/completions"}, {"POST", "/v1/chat/completions"},
      {"GET", "/nowhere"},         {"DELETE", "/v1/models"},
      {"GET", "/health/"},         {"GET", "/health%2f.."}};
  for (const auto& [method, path] : routes) {
    const TestResponse refused = testing::fetch(server.port(), method, path, "{}");
    EXPECT_EQ(refused.status, 401) << path;
    EXPECT_EQ(json_of(refused.body)["error"]["code"], "invalid_api_key") << path;
    EXPECT_EQ(refused.field("WWW-Authenticate"), "Bearer");
    EXPECT_EQ(
        testing::fetch(server.port(), method, path, "{}", "Authorization: Bearer a-secret-kez\r\n")
            .status,
        401);
  }
  EXPECT_EQ(server.get("/health").status, 200);
  EXPECT_EQ(server.get("/ready", "Authorization: Bearer a-secret-key\r\n").status, 200);
}

TEST(Service, TellsWhatItServes) {
  TestServer server({.service = {.version = "1.2"}});
  EXPECT_EQ(json_of(server.get("/version").body)["version"], "1.2");
  const Json models = json_of(server.get("/v1/models").body);
  EXPECT_EQ(models["data"][0]["id"], "tiny");
  EXPECT_EQ(models["data"][0]["max_model_len"], 128);
  EXPECT_EQ(json_of(server.get("/v1/models/tiny").body)["object"], "model");
  const TestResponse absent = server.get("/v1/models/other");
  EXPECT_EQ(absent.status, 404);
  EXPECT_EQ(json_of(absent.body)["error"]["code"], "model_not_found");
  EXPECT_EQ(server.get("/health").status, 200);
  EXPECT_EQ(server.get("/ready").status, 200);
}

TEST(Service, AnswersUnknownRoutesAndMethodsAsJson) {
  TestServer server;
  const TestResponse absent = server.get("/v1/images");
  EXPECT_EQ(absent.status, 404);
  EXPECT_EQ(json_of(absent.body)["error"]["type"], "not_found_error");
  const TestResponse wrong = server.get("/v1/completions");
  EXPECT_EQ(wrong.status, 405);
  EXPECT_EQ(wrong.field("Allow"), "POST");
  EXPECT_EQ(json_of(wrong.body)["error"]["code"], "method_not_allowed");
  EXPECT_EQ(testing::fetch(server.port(), "OPTIONS", "/health").status, 405);
  EXPECT_EQ(json_of(server.get("/%ff\"").body)["error"]["code"], "unknown_route");
}

TEST(Service, RefusesBodiesThatAreCompressed) {
  TestServer server;
  const std::string body = R"({"prompt":"a","max_tokens":1})";
  const TestResponse coded =
      testing::fetch(server.port(), "POST", "/v1/completions", body, "Content-Encoding: gzip\r\n");
  EXPECT_EQ(coded.status, 415);
  EXPECT_THAT(coded.body, HasSubstr("Content-Encoding"));
  EXPECT_EQ(testing::fetch(server.port(), "POST", "/v1/completions", body,
                           "Content-Encoding: identity\r\n")
                .status,
            200);
}

TEST(Service, TurnsTextIntoTokensAndBack) {
  TestServer server;
  const Json tokens =
      json_of(server.post("/tokenize", R"({"prompt":"Hi </s>","return_token_strs":true})").body);
  EXPECT_EQ(tokens["count"], 4);
  EXPECT_EQ(tokens["tokens"][3], 2);
  EXPECT_EQ(tokens["token_strs"][0], "H");
  EXPECT_EQ(tokens["max_model_len"], 128);
  const Json back =
      json_of(server.post("/detokenize", R"({"tokens":)" + tokens["tokens"].dump() + "}").body);
  EXPECT_EQ(back["prompt"], "Hi </s>");
  const Json chat =
      json_of(server.post("/tokenize", R"({"messages":[{"role":"user","content":"a"}]})").body);
  EXPECT_EQ(chat["count"], std::string("<user>a<assistant>").size());
  const std::string long_text(2 * testing::kContext, 'a');
  const Json long_chat = json_of(
      server.post("/tokenize", R"({"messages":[{"role":"user","content":")" + long_text + "\"}]}")
          .body);
  EXPECT_GT(long_chat.value("count", 0), 2 * testing::kContext)
      << "how much too long it is, one may ask";
  const TestResponse endless =
      server.post("/tokenize", R"({"prompt":")" + std::string((1 << 20) + 1, 'a') + "\"}");
  EXPECT_EQ(endless.status, 400) << "to come again would not help";
  EXPECT_THAT(endless.body, HasSubstr("\"param\":\"prompt\""));
  EXPECT_EQ(server.post("/tokenize", "{}").status, 400);
  EXPECT_EQ(server.post("/detokenize", R"({"tokens":[96]})").status, 400);
  EXPECT_EQ(server.post("/detokenize", "{}").status, 400);
}

TEST(Service, IsNotReadyBeforeTheModelIs) {
  TestServer server({.service = {.model_name = "soon"}, .with_model = false});
  EXPECT_EQ(server.get("/health").status, 200);
  EXPECT_EQ(server.get("/ready").status, 503);
  const TestResponse refused = server.post("/v1/completions", completion_body(1, 1));
  EXPECT_EQ(refused.status, 503);
  EXPECT_EQ(json_of(refused.body)["error"]["code"], "loading");
  EXPECT_NE(refused.field("Retry-After"), "");
  EXPECT_TRUE(json_of(server.get("/v1/models").body)["data"].empty());
  EXPECT_EQ(json_of(server.get("/top").body)["loading"], true);
  EXPECT_THAT(server.get("/metrics").body, HasSubstr("model_name=\"soon\""));
  server.set_model();
  EXPECT_EQ(server.get("/ready").status, 200);
  EXPECT_EQ(server.post("/v1/completions", completion_body(1, 1)).status, 200);
}

TEST(Service, DrainsWhatIsUnderWay) {
  TestServer server;
  server.iterations().allow(0);
  TestClient client(server.port());
  client.send(request_text("POST", "/v1/completions", completion_body(1, 50)));
  server.iterations().wait_until_held();
  server.service().begin_drain();
  server.engine().begin_drain();
  const TestResponse refused = server.post("/v1/completions", completion_body(2, 5));
  EXPECT_EQ(refused.status, 503);
  EXPECT_NE(refused.field("Retry-After"), "");
  EXPECT_EQ(server.get("/ready").status, 503);
  EXPECT_EQ(server.get("/health").status, 200);
  server.iterations().open();
  EXPECT_EQ(json_of(client.read_response().body)["usage"]["completion_tokens"], 50);
  EXPECT_TRUE(server.engine().drain(5));
}

TEST(Service, WhatWaitsToBeReadIsAnsweredWhenItStops) {
  TestServer server({.service = {.work = {.thread_count = 1}}});
  const std::string body = R"({"prompt":")" + std::string(500'000, 'a') + "\"}";
  std::vector<TestClient> clients;
  for (int i = 0; i < 5; ++i) {
    clients.emplace_back(server.port());
    clients.back().send(request_text("POST", "/tokenize", body));
  }
  ASSERT_TRUE(soon([&] { return server.http_stats().requests_total == 5; }));
  server.service().begin_drain();
  server.service().stop();
  for (TestClient& client : clients) {
    const int status = client.read_response().status;
    EXPECT_TRUE(status == 200 || status == 503) << status;
  }
}

TEST(Service, CutsOffWithAbortWhenTheEngineStops) {
  TestServer server({.iteration_ms = 3});
  TestClient client(server.port());
  client.send(
      request_text("POST", "/v1/completions", completion_body(1, 110, R"(,"stream":true)")));
  EXPECT_NE(client.read_until("data: {"), "");
  server.engine().stop();
  EXPECT_NE(client.read_until("\"finish_reason\":\"abort\""), "");
  EXPECT_NE(client.read_until("data: [DONE]"), "");
}

TEST(Service, IsUnhealthyWhileNothingMoves) {
  TestServer server({.engine = {.stall_seconds_max = 0.05}});
  server.iterations().allow(0);
  TestClient client(server.port());
  client.send(request_text("POST", "/v1/completions", completion_body(1, 5)));
  EXPECT_TRUE(soon([&] { return server.get("/health").status == 503; }));
  const TestResponse stalled = server.get("/health");
  EXPECT_EQ(json_of(stalled.body)["status"], "stalled");
  EXPECT_NE(stalled.field("Retry-After"), "");
  server.iterations().open();
  EXPECT_EQ(client.read_response().status, 200);
  EXPECT_TRUE(soon([&] { return server.get("/health").status == 200; }));
}

TEST(Service, StreamsThatWaitForOthersSayThatTheyGoOnUnlessNothingMoves) {
  TestServer server({.engine = {.stall_seconds_max = 1}, .http = {.event_pause_ms = 50}});
  server.iterations().allow(3);
  TestClient client(server.port());
  client.send(request_text("POST", "/v1/completions", completion_body(1, 9, R"(,"stream":true)")));
  EXPECT_NE(client.read_until("data: {"), "");
  EXPECT_NE(client.read_until("\r\n:\n\n\r\n"), "");
  EXPECT_TRUE(soon([&] { return server.get("/health").status == 503; }));
  while (!client.read_until("\r\n:\n\n", 150).empty()) continue;
  EXPECT_EQ(client.read_until("\r\n:\n\n", 250), "");
  server.iterations().open();
  EXPECT_NE(client.read_until("data: [DONE]"), "");
}

TEST(Service, AFaultOfOneRequestIsItsOwn) {
  serve::EngineOptions engine;
  std::atomic<serve::RequestId> victim{-1};
  engine.faults.on_logits = [&](serve::RequestId request, int32_t, std::span<float> logits) {
    if (request == victim) logits[0] = std::numeric_limits<float>::quiet_NaN();
  };
  TestServer server({.engine = engine, .iteration_ms = 2});
  const std::string expected = text_of(server.post("/v1/completions", completion_body(1, 40)));
  // Its answer is there before the engine has let it go.
  ASSERT_TRUE(soon([&] { return server.engine().status(true).requests.empty(); }));
  server.iterations().allow(0);
  TestClient neighbour(server.port());
  neighbour.send(request_text("POST", "/v1/completions", completion_body(1, 40)));
  server.iterations().wait_until_held();
  victim = server.engine().status(true).requests.front().id + 1;
  server.iterations().open();
  const TestResponse failed = server.post("/v1/completions", completion_body(2, 40));
  EXPECT_EQ(failed.status, 500);
  EXPECT_EQ(json_of(failed.body)["error"]["type"], "server_error");
  EXPECT_EQ(text_of(neighbour.read_response()), expected);
}

TEST(Service, ShowsMetrics) {
  TestServer server;
  server.service().set_peaks({.bytes_per_s = 1e10, .flops_per_s = 1e11});
  server.post("/v1/completions", completion_body(1, 10));
  server.post("/v1/completions", R"({"prompt":5})");
  // The engine counts a request when its turn ends, which is just after the answer.
  ASSERT_TRUE(soon([&] {
    return server.idle() && server.engine().histograms().total_seconds.snapshot().count == 1;
  }));
  const TestResponse response = server.get("/metrics");
  EXPECT_EQ(response.field("Content-Type"), "text/plain; version=0.0.4; charset=utf-8");
  for (const char* line :
       {"\njige:num_requests_running{model_name=\"tiny\"} 0\n",
        "\njige:num_requests_waiting{model_name=\"tiny\"} 0\n",
        "\njige:kv_cache_usage_perc{model_name=\"tiny\"} 0\n",
        "\njige:prompt_tokens_total{model_name=\"tiny\"} 16\n",
        "\njige:generation_tokens_total{model_name=\"tiny\"} 10\n",
        "\njige:num_preemptions_total{model_name=\"tiny\"} 0\n",
        "\njige:spec_decode_num_draft_tokens_total{model_name=\"tiny\"} 0\n",
        "\njige:spec_decode_num_accepted_tokens_total{model_name=\"tiny\"} 0\n",
        "\njige:guessed_tokens_total{model_name=\"tiny\",source=\"forced\"} 0\n",
        "\njige:guessed_tokens_total{model_name=\"tiny\",source=\"copied\"} 0\n",
        "\njige:guessed_tokens_right_total{model_name=\"tiny\",source=\"model\"} 0\n",
        "\njige:draft_model_read_tokens_total{model_name=\"tiny\"} 0\n",
        "\njige:draft_model_known_tokens_total{model_name=\"tiny\"} 0\n",
        "\njige:prefix_cache_queries_total{",
        "\njige:prefix_cache_hits_total{",
        "\njige:request_success_total{model_name=\"tiny\",finished_reason=\"length\"} 1\n",
        "\njige:time_to_first_token_seconds_count{model_name=\"tiny\"} 1\n",
        "\njige:inter_token_latency_seconds_count{model_name=\"tiny\"} 9\n",
        "\njige:e2e_request_latency_seconds_count{model_name=\"tiny\"} 1\n",
        "\njige:request_queue_time_seconds_sum{",
        "\njige:request_prefill_time_seconds_sum{",
        "\njige:request_decode_time_seconds_sum{",
        "\njige:request_prompt_tokens_sum{model_name=\"tiny\"} 16\n",
        "\njige:request_generation_tokens_sum{model_name=\"tiny\"} 10\n",
        "\njige:request_params_max_tokens_sum{model_name=\"tiny\"} 10\n",
        "\njige:request_params_n_count{model_name=\"tiny\"} 1\n",
        "\njige:iteration_tokens_total_count{",
        "\njige:roofline_memory_share{",
        "\njige:http_requests_total{model_name=\"tiny\",handler=\"/v1/completions\","
        "status=\"400\"} 1\n"}) {
    EXPECT_THAT(response.body, HasSubstr(line));
  }
}

TEST(Service, CountsRequestsThatNoRouteSaw) {
  TestServer server({.http = {.body_bytes_max = 100}});
  EXPECT_EQ(server.post("/v1/completions", std::string(101, ' ')).status, 413);
  EXPECT_THAT(server.get("/metrics").body,
              HasSubstr("\njige:http_requests_refused_total{model_name=\"tiny\"} 1\n"));
}

TEST(Service, ShowsEveryRequestForALiveView) {
  TestServer server;
  server.iterations().allow(4);
  TestClient client(server.port());
  client.send(request_text("POST", "/v1/completions", completion_body(1, 60, R"(,"priority":3)")));
  server.iterations().wait_until_held();
  const Json top = json_of(server.get("/top").body);
  EXPECT_EQ(top["running"], 1);
  ASSERT_EQ(top["requests"].size(), 1u);
  EXPECT_EQ(top["requests"][0]["state"], "decode");
  EXPECT_EQ(top["requests"][0]["priority"], 3);
  EXPECT_EQ(top["requests"][0]["prompt_tokens"], 16);
  EXPECT_GT(top["kv_usage"].get<double>(), 0);
  server.iterations().open();
  EXPECT_EQ(client.read_response().status, 200);
}

}  // namespace
}  // namespace jige::api
