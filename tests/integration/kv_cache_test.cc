// --kv-cache q8 as users meet it: what is predicted and told, answers that are the same every time
// and beside others, and scores close to those of a whole cache.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "integration/serving.h"
#include "integration/tiny_run.h"

namespace jige::integration {
namespace {

using ::testing::HasSubstr;

const std::string kTwoThings =
    "Mia has a red kite. Tom has a golden bell. What does Tom have? Tom has a golden bell.";

// The tiny model: 2 layers, 2 key/value heads of 16 numbers.
constexpr int64_t kNumbersPerToken = 2 * 2 * 2 * 16;
constexpr int64_t kScalesPerToken = 2 * 2 * 2;

Json memory_with_cache(const std::string& dtype, const std::string& cache) {
  const Outcome outcome =
      run_jige({"inspect", TinyRun::get().model(), "--dtype", dtype, "--context", "96",
                "--sequences", "5", "--kv-cache", cache, "--json"});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  return outcome.json()["memory"];
}

TEST(KvCache, InspectPredictsItsBytes) {
  for (const auto& [dtype, whole] : {std::pair{"f32", 4}, {"bf16", 2}}) {
    const Json compute = memory_with_cache(dtype, "compute");
    EXPECT_EQ(compute["kv_bytes_per_token"], kNumbersPerToken * whole);
    EXPECT_EQ(compute["run"]["kv_cache"], dtype);
    const Json bytes = memory_with_cache(dtype, "q8");
    EXPECT_EQ(bytes["kv_bytes_per_token"], kNumbersPerToken + 2 * kScalesPerToken);
    EXPECT_EQ(bytes["run"]["kv_cache"], "q8");
    EXPECT_EQ(bytes["run"]["parts"]["key/value cache"],
              5 * 96 * (kNumbersPerToken + 2 * kScalesPerToken));
    EXPECT_EQ(
        compute["run"]["total_bytes"].get<int64_t>() - bytes["run"]["total_bytes"].get<int64_t>(),
        5 * 96 * (kNumbersPerToken * (whole - 1) - 2 * kScalesPerToken));
  }
  const Outcome text = run_jige({"inspect", TinyRun::get().model(), "--kv-cache", "q8"});
  EXPECT_THAT(text.out, HasSubstr(", q8 cache, 1 sequence"));
}

std::vector<double> story_logprobs(const std::string& cache) {
  const Outcome outcome = run_jige({"score", TinyRun::get().model(), "--kv-cache", cache},
                                   dump_json(Json{{"text", kTwoThings}}) + "\n");
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  return outcome.json()["logprobs"].get<std::vector<double>>();
}

TEST(KvCache, ScoresLieCloseToThoseOfAWholeCache) {
  const std::vector<double> whole = story_logprobs("compute");
  const std::vector<double> bytes = story_logprobs("q8");
  ASSERT_EQ(whole.size(), bytes.size());
  EXPECT_NE(whole, bytes);
  for (size_t i = 0; i < whole.size(); ++i) EXPECT_NEAR(whole[i], bytes[i], 0.01) << i;
}

Json cached_answer(const std::vector<std::string>& more) {
  std::vector<std::string> words = {"generate",
                                    TinyRun::get().model(),
                                    "--prompt",
                                    kTwoThings,
                                    "--max-new-tokens",
                                    "30",
                                    "--seed",
                                    "4",
                                    "--ignore-eos",
                                    "--logprobs",
                                    "2",
                                    "--json"};
  words.insert(words.end(), more.begin(), more.end());
  const Outcome outcome = run_jige(words);
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  return outcome.json();
}

TEST(KvCache, AnswersDependOnTheCacheAndOnNothingElse) {
  const Json one = cached_answer({"--kv-cache", "q8", "--threads", "1", "--speculate", "off"});
  const Json two = cached_answer({"--kv-cache", "q8", "--threads", "2", "--speculate", "6"});
  EXPECT_EQ(one["tokens"], two["tokens"]);
  EXPECT_EQ(one["logprobs"], two["logprobs"]);
  EXPECT_EQ(cached_answer({})["logprobs"], cached_answer({"--kv-cache", "compute"})["logprobs"]);
  EXPECT_NE(one["logprobs"], cached_answer({"--threads", "1"})["logprobs"]);
}

TEST(KvCache, ServeTellsItAndGivesTheAnswersOfGenerate) {
  const Json body = {{"prompt", kTwoThings}, {"max_tokens", 30}, {"temperature", 0}, {"n", 2},
                     {"ignore_eos", true},   {"logprobs", 2}};
  const Json alone = cached_answer({"--kv-cache", "q8", "--temperature", "0"});
  const std::string bytes = std::to_string(960 * (kNumbersPerToken + 2 * kScalesPerToken));
  const Outcome told =
      serve_and_stop({TinyRun::get().model(), "--json", "--kv-cache", "q8", "--kv-tokens", "960"});
  EXPECT_THAT(told.out, HasSubstr("\"kv_cache\":\"q8\""));
  EXPECT_THAT(told.out, HasSubstr("\"kv_bytes\":" + bytes));
  Serving server({TinyRun::get().model(), "--kv-cache", "q8", "--kv-tokens", "960"});
  EXPECT_THAT(server.out(), HasSubstr(" q8 cache of 960 tokens"));
  for (int turn = 0; turn < 2; ++turn) {  // the second finds the first one's prefix
    const auto answer = server.post("/v1/completions", dump_json(body));
    ASSERT_EQ(answer.status, 200) << answer.body;
    const Result<Json> json = parse_json(answer.body, "an answer");
    ASSERT_TRUE(json);
    EXPECT_THAT((*json)["system_fingerprint"].get<std::string>(), HasSubstr("-kvq8-"));
    for (const Json& choice : (*json)["choices"]) EXPECT_EQ(choice["text"], alone["text"]);
  }
}

TEST(KvCache, BenchInferenceTellsIt) {
  const Outcome outcome =
      run_jige({"bench", "inference", "--size", "tiny", "--prompt-tokens", "20", "--new-tokens",
                "8", "--seconds", "0.01", "--kv-cache", "q8", "--json"});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr(", q8 cache"));
}

TEST(KvCache, UnknownNamesAreRefusedWithTheKnownOnes) {
  const Outcome outcome =
      run_jige({"generate", TinyRun::get().model(), "--kv-cache", "q4", "--prompt", "x"});
  expect_error(outcome, 2, {"--kv-cache", "q4", "compute", "q8"});
}

}  // namespace
}  // namespace jige::integration
