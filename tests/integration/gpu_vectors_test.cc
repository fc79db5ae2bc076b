// Models whose tokens see those behind them on a GPU, by emulated GPUs (jige_emulated): `jige
// embed`, `jige rerank` and `jige serve` as users run them, beside the processor's results.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "integration/emulated_gpus.h"
#include "integration/process.h"
#include "integration/serving.h"
#include "integration/tiny_run.h"

namespace jige::integration {
namespace {

using ::testing::HasSubstr;

const std::string kTexts = "\"a red kite\"\n\"The capital of China is Beijing.\"\n\"x\"\n";

class GpuVectors : public OnEmulatedGpus {
 protected:
  static std::string folder_of(const std::string& name) {
    return std::string(JIGE_SOURCE_DIR) + "/tests/fixtures/" + name;
  }
  static JsonLines lines_with(const std::vector<std::string>& words, const std::string& device) {
    std::vector<std::string> all = words;
    all.insert(all.end(), {"--dtype", "f32", "--context", "80", "--device", device});
    const Outcome outcome = run_jige(all, kTexts);
    EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
    return outcome.json_lines();
  }
  static void expect_near(const Json& got, const Json& expected) {
    ASSERT_EQ(got.size(), expected.size());
    for (size_t i = 0; i < got.size(); ++i) {
      EXPECT_NEAR(got[i].get<double>(), expected[i].get<double>(), 3e-5) << i;
    }
  }
};

TEST_F(GpuVectors, AreThoseOfTheProcessor) {
  for (const std::string name : {"bert", "modernbert", "mpnet", "deberta", "gemma"}) {
    SCOPED_TRACE(name);
    const std::vector<std::string> words = {"embed", folder_of("embedding/" + name)};
    const JsonLines expected = lines_with(words, "cpu");
    const JsonLines got = lines_with(words, "cuda");
    ASSERT_EQ(got.size(), 3u);
    for (size_t i = 0; i < got.size(); ++i) {
      expect_near(got[i]["embedding"], expected[i]["embedding"]);
    }
  }
}

TEST_F(GpuVectors, ScoresOfDocumentsAreThoseOfTheProcessor) {
  for (const std::string name : {"bert", "deberta_keys", "modernbert_mean"}) {
    SCOPED_TRACE(name);
    const std::vector<std::string> words = {"rerank", folder_of("pairs/" + name), "--query",
                                            "Which capital?", "--json"};
    const JsonLines expected = lines_with(words, "cpu");
    const JsonLines got = lines_with(words, "cuda");
    ASSERT_EQ(got.size(), 4u);
    for (size_t i = 0; i < 3; ++i) {
      EXPECT_EQ(got[i]["index"], expected[i]["index"]);
      EXPECT_NEAR(got[i]["relevance_score"].get<double>(),
                  expected[i]["relevance_score"].get<double>(), 3e-5);
    }
  }
}

TEST_F(GpuVectors, AreServed) {
  const std::string folder = folder_of("embedding/bert");
  const Serving server({folder, "--dtype", "f32", "--context", "80", "--device", "cuda"});
  const auto response = server.post("/v1/embeddings", R"({"input": "a red kite"})");
  ASSERT_EQ(response.status, 200) << response.body;
  expect_near(Json::parse(response.body)["data"][0]["embedding"],
              lines_with({"embed", folder}, "cpu")[0]["embedding"]);

  const Serving judge({folder_of("pairs/xlm_roberta"), "--device", "cuda"});
  const auto ranked = judge.post("/v1/rerank", R"({"query": "who?", "documents": ["a", "bell"]})");
  ASSERT_EQ(ranked.status, 200) << ranked.body;
  EXPECT_EQ(Json::parse(ranked.body)["results"].size(), 2u);
}

TEST_F(GpuVectors, MemoryIsToldBeforehand) {
  const Outcome outcome =
      run_jige({"inspect", folder_of("embedding/modernbert"), "--device", "cuda"});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("to both sides"));
}

}  // namespace
}  // namespace jige::integration
