// `jige serve` of an embedding model as users meet it: the vectors of `jige embed`, over HTTP.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "integration/process.h"
#include "integration/serving.h"
#include "integration/tiny_run.h"

namespace jige::integration {
namespace {

using ::testing::HasSubstr;
using Numbers = std::vector<float>;

std::string recorded_folder(const std::string& name) {
  return std::string(JIGE_SOURCE_DIR) + "/tests/fixtures/embedding/" + name;
}

std::vector<Numbers> served_vectors(const Serving& server, const Json& body) {
  const auto response = server.post("/v1/embeddings", body.dump());
  EXPECT_EQ(response.status, 200) << response.body;
  std::vector<Numbers> vectors;
  const Json answer = Json::parse(response.body);
  for (const Json& one : answer["data"]) vectors.push_back(one["embedding"].get<Numbers>());
  return vectors;
}

std::vector<Numbers> offline_vectors(const std::string& folder,
                                     const std::vector<std::string>& texts,
                                     const std::vector<std::string>& more = {}) {
  std::string input;
  for (const std::string& text : texts) input += Json(text).dump() + "\n";
  std::vector<std::string> words = {"embed", folder, "--dtype", "f32"};
  words.insert(words.end(), more.begin(), more.end());
  const Outcome outcome = run_jige(words, input);
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  std::vector<Numbers> vectors;
  for (const Json& line : outcome.json_lines()) {
    vectors.push_back(line.at("embedding").get<Numbers>());
  }
  return vectors;
}

TEST(EmbedServe, GivesTheBitsOfJigeEmbed) {
  const std::vector<std::string> texts = {"a red kite", "The capital of China is Beijing.", "x",
                                          std::string(150, 'w')};
  for (const std::string name : {"qwen3", "mistral"}) {
    const std::string folder = recorded_folder(name);
    Serving server({folder, "--dtype", "f32"});
    const auto expected = offline_vectors(folder, texts);
    EXPECT_EQ(served_vectors(server, {{"input", texts}}), expected);
    EXPECT_EQ(served_vectors(server, {{"input", texts}, {"prompt_name", "query"}}),
              offline_vectors(folder, texts, {"--prompt", "query"}));
    EXPECT_EQ(served_vectors(server, {{"input", texts}, {"prompt", "Q: "}, {"dimensions", 7}}),
              offline_vectors(folder, texts, {"--prompt-text", "Q: ", "--dimensions", "7"}));
    std::vector<std::thread> clients;
    for (size_t i = 0; i < 8; ++i) {
      clients.emplace_back([&, i] {
        const size_t which = i % texts.size();
        for (int round = 0; round < 5; ++round) {
          EXPECT_EQ(served_vectors(server, {{"input", texts[which]}}),
                    std::vector<Numbers>{expected[which]});
        }
      });
    }
    for (std::thread& client : clients) client.join();
  }
}

// With layers behind the pooling, and more tokens at once than --batch-tokens says.
TEST(EmbedServe, TextsOfModelsThatLookAheadRunWhole) {
  const std::vector<std::string> texts = {"a red kite", "The capital of China is Beijing."};
  for (const std::string name : {"gemma", "bert", "modernbert", "nomic", "deberta", "gte"}) {
    Serving server({recorded_folder(name), "--dtype", "f32", "--batch-tokens", "16"});
    EXPECT_EQ(served_vectors(server, {{"input", texts}, {"prompt_name", "query"}}),
              offline_vectors(recorded_folder(name), texts, {"--prompt", "query"}));
    const Json model = Json::parse(server.get("/v1/models").body)["data"][0];
    EXPECT_EQ(model["embedding_dimensions"], name == "gemma" ? 20 : 24);
  }
}

TEST(EmbedServe, SaysWhatItServesAndWhatItDoesNot) {
  Serving server({recorded_folder("qwen3"), "--served-model-name", "kites"});
  const Json model = Json::parse(server.get("/v1/models").body)["data"][0];
  EXPECT_EQ(model["id"], "kites");
  EXPECT_EQ(model["type"], "embedding");
  EXPECT_EQ(model["embedding_dimensions"], 24);
  const auto refused = server.post("/v1/chat/completions", R"({"messages":[]})");
  EXPECT_EQ(refused.status, 400);
  EXPECT_THAT(refused.body, HasSubstr("POST /v1/embeddings"));
  const std::string word(2000, 'x');
  const auto long_text = server.post("/v1/embeddings", Json{{"input", word}}.dump());
  EXPECT_EQ(long_text.status, 400);
  EXPECT_THAT(long_text.body, HasSubstr("200 are allowed; shorten it, or set truncate to true"));
  EXPECT_EQ(served_vectors(server, {{"input", word}, {"truncate", true}}).size(), 1u);
  EXPECT_THAT(server.out(), HasSubstr("vectors of 24 numbers, of texts of up to 200 tokens"));
}

TEST(EmbedServe, TakesAnyModelWhereItIsTold) {
  const std::string folder = TinyRun::get().model();
  Serving server({folder, "--dtype", "f32", "--embeddings", "--pooling", "mean"});
  EXPECT_EQ(served_vectors(server, {{"input", "a red kite"}}),
            offline_vectors(folder, {"a red kite"}, {"--pooling", "mean"}));
  Serving other({folder});
  const auto refused = other.post("/v1/embeddings", R"({"input":"a"})");
  EXPECT_EQ(refused.status, 400);
  EXPECT_THAT(refused.body, HasSubstr("--embeddings"));
}

TEST(EmbedServe, InspectTellsTheMemoryToEmbed) {
  const Outcome shown = run_jige({"inspect", recorded_folder("llama"), "--dtype", "f32"});
  EXPECT_EQ(shown.exit_code, 0) << shown.err;
  EXPECT_THAT(shown.out, HasSubstr("To embed, f32, 1 text of"));
  EXPECT_THAT(shown.out, ::testing::Not(HasSubstr("cannot run")));
  EXPECT_THAT(run_jige({"inspect", TinyRun::get().model()}).out, HasSubstr("To run, "));
}

}  // namespace
}  // namespace jige::integration
