// POST /v1/embeddings of a whole server: vectors are those of an Embedder, to the bit, for however
// many clients; those who go away leave nothing behind.
#include <gmock/gmock.h>

#include <array>
#include <atomic>
#include <bit>
#include <cstring>
#include <thread>

#include "api/service_test_support.h"
#include "base/base64.h"
#include "base/rng.h"
#include "base/test_fuzz_rounds.h"
#include "serve/adapter_folders.h"
#include "serve/embedder.h"

namespace jige::api {
namespace {

using ::testing::HasSubstr;
using testing::json_of;
using testing::request_text;
using testing::soon;
using testing::TestClient;
using testing::TestServer;
using testing::TestServerOptions;
using testing::value_of;
using Vector = std::vector<float>;

constexpr const char* kPath = "/v1/embeddings";

TestServerOptions embeds() {
  TestServerOptions options;
  options.embeds = true;
  return options;
}

// What an Embedder of its own makes of a text.
class Reference {
 public:
  // With the one adapter, or none.
  explicit Reference(std::vector<model::AdapterSource> adapter = {})
      : device_({.thread_count = 1}),
        model_(value_of(model::InferenceModel::load(
            serve::testing::fixture("llama3"), device_,
            {.context_max = 128, .embeds = true, .adapters = std::move(adapter)}))),
        tokenizer_(testing::character_tokenizer()) {}
  Vector vector_of(const std::string& text, int64_t dimensions = 0) {
    serve::EmbeddingForm form = testing::test_embedding().form;
    form.dimensions = dimensions;
    const int32_t adapter = model_->adapters().empty() ? model::kNoAdapter : 0;
    serve::Embedder embedder(*model_, form, adapter);
    const std::vector<serve::EmbedInput> inputs = {
        {.tokens = value_of(tokenizer_.encode(text, {}))}};
    return value_of(embedder.embed(inputs))[0];
  }
  int64_t width() const { return model_->config().hidden_size; }

 private:
  CpuDevice device_;
  std::unique_ptr<model::InferenceModel> model_;
  text::Tokenizer tokenizer_;
};

std::string body_of(const std::vector<std::string>& texts, const std::string& more = "") {
  return R"({"input":)" + Json(texts).dump() + more + "}";
}

std::vector<Vector> vectors_of(const testing::TestResponse& response) {
  EXPECT_EQ(response.status, 200) << response.body;
  std::vector<Vector> vectors;
  const Json json = json_of(response.body);
  EXPECT_EQ(json["object"], "list");
  for (const Json& one : json["data"]) {
    EXPECT_EQ(one["object"], "embedding");
    EXPECT_EQ(one["index"], vectors.size());
    vectors.push_back(one["embedding"].get<Vector>());
  }
  return vectors;
}

TEST(Embeddings, AreThoseOfAnEmbedder) {
  TestServer server(embeds());
  Reference reference;
  const std::vector<std::string> texts = {"a red kite", "x", std::string(100, 'w')};
  const auto response = server.post(kPath, body_of(texts));
  const std::vector<Vector> vectors = vectors_of(response);
  ASSERT_EQ(vectors.size(), 3u);
  for (size_t i = 0; i < texts.size(); ++i) EXPECT_EQ(vectors[i], reference.vector_of(texts[i]));
  const Json json = json_of(response.body);
  EXPECT_EQ(json["model"], "tiny");
  EXPECT_EQ(json["usage"], (Json{{"prompt_tokens", 111}, {"total_tokens", 111}}));
  EXPECT_THAT(response.field("x-request-id"), ::testing::StartsWith("embd-"));
  EXPECT_THAT(response.field("x-jige-timing"), HasSubstr("queue_ms="));

  const auto base64 =
      server.post(kPath, body_of({"x"}, R"(,"encoding_format":"base64","dimensions":5)"));
  const Vector few = reference.vector_of("x", 5);
  EXPECT_EQ(json_of(base64.body)["data"][0]["embedding"],
            base64_text({reinterpret_cast<const char*>(few.data()), few.size() * 4}));
  EXPECT_TRUE(soon([&] { return server.idle(); }));
}

TEST(Embeddings, ManyClientsGetTheBitsTheyWouldGetAlone) {
  constexpr int kClients = 8, kRounds = 12;
  TestServer server(embeds());
  Reference reference;
  std::vector<std::string> texts;
  std::vector<Vector> expected;
  for (int i = 0; i < 20; ++i) {
    texts.push_back(std::string(static_cast<size_t>(1 + 5 * i), static_cast<char>('a' + i)));
    expected.push_back(reference.vector_of(texts.back()));
  }
  std::vector<std::thread> clients;
  std::atomic<int> compared{0};
  for (int client = 0; client < kClients; ++client) {
    clients.emplace_back([&, client] {
      for (int round = 0; round < kRounds; ++round) {
        Rng rng(derive_key(static_cast<uint64_t>(client * 1000 + round), "embeddings"));
        std::vector<std::string> asked;
        std::vector<Vector> wanted;
        for (uint64_t i = 1 + rng.below(5); i > 0; --i) {
          const size_t which = rng.below(texts.size());
          asked.push_back(texts[which]);
          wanted.push_back(expected[which]);
        }
        if (rng.below(4) == 0) {  // goes away
          TestClient gone(server.port());
          gone.send(request_text("POST", kPath, body_of(asked)));
          if (rng.below(2) == 0) std::this_thread::sleep_for(std::chrono::milliseconds(2));
          gone.reset();
          continue;
        }
        EXPECT_EQ(vectors_of(server.post(kPath, body_of(asked))), wanted);
        ++compared;
      }
    });
  }
  for (std::thread& client : clients) client.join();
  EXPECT_GT(compared, kClients * kRounds / 2);
  EXPECT_TRUE(soon([&] { return server.idle(); }));
}

TEST(Embeddings, AnAdapterIsAskedForByItsName) {
  const serve::testing::AdapterFolders folders("llama3");
  TestServerOptions options = embeds();
  options.adapters = {folders.sources[0]};
  options.adapter_root = folders.path;
  options.adapter_rooms = 1;
  TestServer server(std::move(options));
  const std::vector<std::string> texts = {"a red kite", std::string(60, 'w')};
  const auto asked = [&](const std::string& model) {
    return server.post(kPath, body_of(texts, R"(,"model":")" + model + "\""));
  };
  const auto expect_vectors = [&](const std::string& model, Reference reference) {
    const std::vector<Vector> vectors = vectors_of(asked(model));
    ASSERT_EQ(vectors.size(), texts.size());
    for (size_t i = 0; i < texts.size(); ++i) {
      EXPECT_EQ(vectors[i], reference.vector_of(texts[i])) << model;
    }
  };
  const std::string& given = folders.sources[0].name;
  expect_vectors("tiny", Reference());
  expect_vectors(given, Reference({folders.sources[0]}));
  EXPECT_NE(vectors_of(asked("tiny")), vectors_of(asked(given)));
  EXPECT_EQ(json_of(asked(given).body)["model"], given);

  // Another, loaded while it serves.
  EXPECT_EQ(asked("later").status, 404);
  const Json load = {{"lora_name", "later"}, {"lora_path", folders.sources[1].folder}};
  EXPECT_EQ(server.post("/v1/load_lora_adapter", load.dump()).status, 200);
  expect_vectors("later", Reference({folders.sources[1]}));
  EXPECT_NE(vectors_of(asked("later")), vectors_of(asked(given)));
  EXPECT_EQ(server.post("/v1/unload_lora_adapter", R"({"lora_name":"later"})").status, 200);
  EXPECT_EQ(asked("later").status, 404);
}

TEST(Embeddings, AClientThatGoesAwayLeavesNothingBehind) {
  TestServerOptions options = embeds();
  options.iteration_ms = 20;
  TestServer server(std::move(options));
  server.iterations().allow(0);
  {
    TestClient client(server.port());
    client.send(request_text("POST", kPath, body_of(std::vector<std::string>(60, "much to do"))));
    server.iterations().wait_until_held();
    client.reset();
  }
  server.iterations().open();
  ASSERT_TRUE(soon([&] { return server.idle(); }));
  const auto status = server.engine().status();
  EXPECT_GT(status.counters.requests_finished[static_cast<size_t>(serve::FinishReason::kCancelled)],
            20);
  EXPECT_EQ(server.post(kPath, body_of({"x"})).status, 200);
}

TEST(Embeddings, LimitsRefuseWithTheirReason) {
  TestServerOptions options = embeds();
  options.engine.waiting_requests_max = 3;
  TestServer server(std::move(options));
  server.iterations().allow(0);
  const auto never = server.post(kPath, body_of({"a", "b", "c", "d"}));
  EXPECT_EQ(never.status, 400);
  EXPECT_THAT(never.body, HasSubstr("4 inputs"));
  TestClient first(server.port()), second(server.port());
  first.send(request_text("POST", kPath, body_of({std::string(90, 'a')})));
  server.iterations().wait_until_held();  // it runs, so it waits no more
  second.send(request_text("POST", kPath, body_of({"b", "b", "b"})));
  ASSERT_TRUE(soon([&] { return server.engine().status().waiting_requests >= 3; }));
  const auto full = server.post(kPath, body_of({"c"}));
  EXPECT_EQ(full.status, 429) << full.body;
  EXPECT_FALSE(full.field("Retry-After").empty());
  server.iterations().open();
  EXPECT_EQ(first.read_response().status, 200);
  EXPECT_EQ(second.read_response().status, 200);
}

TEST(Embeddings, AShutdownAnswersThoseItCutsOff) {
  TestServerOptions options = embeds();
  options.iteration_ms = 50;  // a text each, so the stop comes long before the last
  TestServer server(std::move(options));
  server.iterations().allow(0);
  TestClient client(server.port());
  client.send(
      request_text("POST", kPath, body_of(std::vector<std::string>(40, std::string(60, 'w')))));
  server.iterations().wait_until_held();
  server.iterations().open();
  server.engine().stop();
  const auto response = client.read_response();
  EXPECT_EQ(response.status, 503);
  EXPECT_THAT(response.body, HasSubstr("shutting down"));
}

TEST(Embeddings, AServerSaysWhatItServes) {
  TestServer server(embeds());
  const Json shown = json_of(server.get("/v1/models/tiny").body);
  EXPECT_EQ(shown["type"], "embedding");
  EXPECT_EQ(shown["embedding_dimensions"], server.model().config().hidden_size);
  EXPECT_EQ(shown["max_model_len"], 100);
  EXPECT_EQ(shown["prompts"], (Json{"query", "title"}));
  EXPECT_THAT(server.get("/metrics").body, HasSubstr("jige:embedding_dimensions{"));
  EXPECT_EQ(server.get("/health").status, 200);
  EXPECT_EQ(server.post("/tokenize", R"({"prompt":"ab"})").status, 200);
  for (const char* path : {"/v1/chat/completions", "/v1/completions", "/v1/responses"}) {
    const auto refused = server.post(path, R"({"prompt":"a","messages":[]})");
    EXPECT_EQ(refused.status, 400) << path;
    const Json error = json_of(refused.body)["error"];
    EXPECT_EQ(error["code"], "embeddings_only");
    EXPECT_THAT(error["message"].get<std::string>(), HasSubstr("POST /v1/embeddings"));
  }
  EXPECT_EQ(server.post("/v1/messages", "{}").status, 400);

  TestServer other;
  const auto refused = other.post(kPath, R"({"input":"a"})");
  EXPECT_EQ(refused.status, 400);
  EXPECT_THAT(refused.body, HasSubstr("--embeddings"));
  EXPECT_FALSE(json_of(other.get("/v1/models/tiny").body).contains("type"));
}

TEST(Embeddings, MutatedBodiesGetWellFormedErrors) {
  TestServer server(embeds());
  const std::vector<std::string> snippets = {"null", "-1", "1e308",   "[[[[",     "{}", "\"\"",
                                             "96",   "[]", "\\ud800", "\xf0\x9f", ",",  "]"};
  int answered = 0, refused = 0;
  for (uint64_t seed = 0; seed < fuzz_rounds(150); ++seed) {
    Rng rng(derive_key(seed, "embedding bodies"));
    std::string body = R"({"input":["ab",[5,6],"cd"],"encoding_format":"float","dimensions":7})";
    for (uint64_t i = rng.below(4); i > 0; --i) {
      body.replace(rng.below(body.size()), 1 + rng.below(3), snippets[rng.below(snippets.size())]);
    }
    const auto response = server.post(kPath, body);
    response.status == 200 ? ++answered : ++refused;
    ASSERT_TRUE(response.status == 200 || response.status == 400 || response.status == 404)
        << body << response.body;
    EXPECT_TRUE(json_of(response.body).contains(response.status == 200 ? "data" : "error"));
  }
  EXPECT_GT(answered, 15);
  EXPECT_GT(refused, 50);
  EXPECT_TRUE(soon([&] { return server.idle(); }));
}

}  // namespace
}  // namespace jige::api
