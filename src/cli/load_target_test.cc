// The two targets of a load: an engine with a random model, and servers that play a recording.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "api/played_server.h"
#include "cli/bench_serve_model.h"
#include "cli/load_engine_target.h"
#include "cli/load_http_target.h"

namespace jige::cli {
namespace {

using api::testing::PlayedServer;
using api::testing::TestPort;
using ::testing::HasSubstr;

const std::atomic<bool> kNotStopped = false;

TEST(EngineTarget, GivesEveryRequestItsWholeAnswer) {
  BenchServeModelFlags flags;
  flags.random = "tiny";
  flags.device.threads = 1;
  auto served = flags.load(64, 64, 64, 8);
  ASSERT_TRUE(served) << served.error().message;
  EXPECT_THAT(served->text, HasSubstr("tiny (random)"));
  for (const plan::ServePolicy policy : plan::kServePolicies) {
    auto engine = serve::Engine::create(*served->model, *served->tokenizer, {.policy = policy});
    ASSERT_TRUE(engine);
    EngineTarget target(**engine, served->model->config().vocab_size, 7);
    std::vector<sim::RequestShape> requests;
    for (int i = 0; i < 12; ++i) requests.push_back({0.001 * i, 5 + i, 1 + i % 5});
    const LoadRun run = drive_load(requests, 0, target, kNotStopped);
    ASSERT_EQ(run.outcomes.size(), 12u);
    for (size_t i = 0; i < 12; ++i) {
      const sim::RequestOutcome& outcome = run.outcomes[i];
      EXPECT_EQ(outcome.failure, "");
      EXPECT_EQ(outcome.prompt_tokens, requests[i].prompt_tokens);
      EXPECT_EQ(outcome.output_tokens, requests[i].output_tokens);
      EXPECT_EQ(std::ssize(outcome.gaps_s), requests[i].output_tokens - 1);
      EXPECT_GT(outcome.first_token_s, outcome.start_s);
      EXPECT_GE(outcome.end_s, outcome.first_token_s);
    }
    // No prompt began like an earlier one.
    EXPECT_EQ((*engine)->status().counters.prefix_hit_tokens, 0);
  }
}

TEST(EngineTarget, TellsRefusalsAndCancels) {
  BenchServeModelFlags flags;
  flags.random = "tiny";
  flags.device.threads = 1;
  auto served = flags.load(4096, 256, 64, 8);
  ASSERT_TRUE(served);
  auto engine = serve::Engine::create(*served->model, *served->tokenizer);
  EngineTarget target(**engine, 50, 7);
  const auto refused =
      drive_load(std::vector<sim::RequestShape>{{0, 5000, 1}}, 0, target, kNotStopped);
  EXPECT_EQ(refused.outcomes[0].failure, "invalid_argument");
  const std::atomic<bool> stop = true;
  target.send(0, {0, 10, 4000});  // far from its end when it is cancelled
  target.cancel_all();
  std::vector<LoadTarget::Finished> finished;
  target.wait(10, finished);
  ASSERT_EQ(finished.size(), 1u);
  EXPECT_EQ(finished[0].outcome.failure, "cancelled");
}

TEST(BenchServeModel, NamesWhatCannotBeLoaded) {
  BenchServeModelFlags flags;
  EXPECT_FALSE(flags.load(64, 64, 64, 8));
  flags.random = "huge";
  EXPECT_THAT(flags.load(64, 64, 64, 8).error().message, HasSubstr("tiny"));
}

api::HttpPeer peer_of(const PlayedServer& server) { return *api::HttpPeer::resolve(server.url()); }

std::string answer_of(const std::string& events) {
  return "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n" + events;
}

std::string piece(const std::string& text) {
  return "data: {\"choices\":[{\"text\":\"" + text + "\",\"finish_reason\":null}]}\n\n";
}

sim::RequestOutcome outcome_of(const std::string& answer, std::string* error = nullptr) {
  PlayedServer server(answer);
  HttpTarget target({.peer = peer_of(server), .model = "m"});
  LoadRun run = drive_load(std::vector<sim::RequestShape>{{0, 4, 3}}, 0, target, kNotStopped);
  if (error) *error = target.first_error();
  return run.outcomes[0];
}

TEST(HttpTarget, ReadsAStream) {
  const auto outcome = outcome_of(
      answer_of(piece("a") + piece("") + piece("b") +
                "data: {\"choices\":[{\"text\":\"\",\"finish_reason\":\"length\"}]}\n\n"
                "data: {\"choices\":[],\"usage\":{\"completion_tokens\":3}}\n\ndata: [DONE]\n\n"));
  EXPECT_EQ(outcome.failure, "");
  EXPECT_EQ(outcome.output_tokens, 3) << "what usage says";
  EXPECT_EQ(outcome.gaps_s.size(), 1u) << "two pieces have text";
  EXPECT_GE(outcome.end_s, outcome.first_token_s);
  EXPECT_GT(outcome.first_token_s, 0);
}

TEST(HttpTarget, CountsPiecesWithoutUsage) {
  EXPECT_EQ(outcome_of(answer_of(piece("a") + piece("b") + "data: [DONE]\n\n")).output_tokens, 2);
}

TEST(HttpTarget, TellsFailuresApart) {
  std::string error;
  EXPECT_EQ(outcome_of("HTTP/1.1 429 Too Many Requests\r\nContent-Length: 34\r\n\r\n"
                       R"({"error":{"message":"come again"}})",
                       &error)
                .failure,
            "HTTP 429");
  EXPECT_EQ(error, "come again");
  EXPECT_EQ(outcome_of(answer_of(piece("a"))).failure, "cut off");
  EXPECT_EQ(outcome_of(answer_of("data: {nonsense\n\n")).failure, "bad stream");
  EXPECT_EQ(outcome_of(answer_of("data: 5\n\n")).failure, "bad stream");
  EXPECT_EQ(outcome_of(answer_of("data: {\"choices\":[7]}\n\n")).failure, "bad stream");
  EXPECT_EQ(outcome_of(answer_of(piece("a") + "data: {\"error\":{\"message\":\"oh\"}}\n\n"), &error)
                .failure,
            "error in the stream");
  EXPECT_EQ(error, "oh");
  EXPECT_EQ(outcome_of("no http\r\n\r\n").failure, "connection");
  EXPECT_EQ(outcome_of("").failure, "connection");
}

TEST(HttpTarget, GivesUpOnSilence) {
  TestPort port;
  port.listen();
  const auto peer = api::HttpPeer::resolve(port.url());
  HttpTarget target({.peer = *peer, .model = "m", .silence_seconds_max = 0.05});
  const auto run = drive_load(std::vector<sim::RequestShape>{{0, 4, 3}}, 0, target, kNotStopped);
  EXPECT_EQ(run.outcomes[0].failure, "timeout");
  target.send(5, {0, 4, 3});
  target.cancel_all();
  std::vector<LoadTarget::Finished> finished;
  target.wait(0, finished);
  ASSERT_EQ(finished.size(), 1u);
  EXPECT_EQ(finished[0].index, 5u);
  EXPECT_EQ(finished[0].outcome.failure, "cancelled");
}

TEST(HttpTarget, AsksForWholeAnswersToTokens) {
  PlayedServer server(answer_of(piece("a") + "data: [DONE]\n\n"));
  api::HttpPeer peer = peer_of(server);
  peer.api_key = "key";
  HttpTarget target({.peer = peer, .model = "m", .vocab_size = 30, .prompt_key = 9});
  drive_load(std::vector<sim::RequestShape>{{0, 6, 11}}, 0, target, kNotStopped);
  server.join();
  EXPECT_THAT(server.last_request, HasSubstr("POST /v1/completions"));
  EXPECT_THAT(server.last_request, HasSubstr("Bearer key"));
  const auto body = parse_json(
      std::string_view(server.last_request).substr(server.last_request.find("\r\n\r\n") + 4), "b");
  ASSERT_TRUE(body);
  EXPECT_EQ((*body)["prompt"], Json(sim::random_prompt(9, 0, 6, 30)));
  EXPECT_EQ((*body)["max_tokens"], 11);
  EXPECT_EQ((*body)["ignore_eos"], true);
  EXPECT_EQ((*body)["stream"], true);
  EXPECT_EQ((*body)["stream_options"]["include_usage"], true);
}

TEST(HttpTarget, FindsTheModel) {
  const std::string list = R"({"data":[{"id":"a"},{"id":"b","max_model_len":512}]})";
  const std::string answer =
      "HTTP/1.1 200 OK\r\nContent-Length: " + std::to_string(list.size()) + "\r\n\r\n" + list;
  PlayedServer server(answer, 3);
  EXPECT_EQ(ask_for_model(peer_of(server), "")->name, "a");
  EXPECT_EQ(ask_for_model(peer_of(server), "b")->context_max, 512);
  const auto none = ask_for_model(peer_of(server), "c");
  ASSERT_FALSE(none);
  EXPECT_EQ(none.error().code, Code::kNotFound);
  EXPECT_THAT(none.error().message, HasSubstr("a, b"));
  PlayedServer loading("HTTP/1.1 200 OK\r\nContent-Length: 11\r\n\r\n{\"data\":[]}");
  const auto later = ask_for_model(peer_of(loading), "");
  ASSERT_FALSE(later);
  EXPECT_EQ(later.error().code, Code::kUnavailable);
  EXPECT_THAT(later.error().message, HasSubstr("still be loading"));
}

}  // namespace
}  // namespace jige::cli
