// Weights of 8 and 4 bits, as a user has them: --quantize of the commands that run a model or train
// an adapter on it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "integration/tiny_run.h"

namespace jige::integration {
namespace {

using ::testing::HasSubstr;

const std::string kText = "Mia has a red kite. Tom has a golden bell. What does Tom have?";

// Bytes of packed weights that `jige inspect` predicts.
int64_t packed_bytes(const std::string& format) {
  const Outcome outcome = run_jige(
      {"inspect", TinyRun::get().model(), "--dtype", "bf16", "--quantize", format, "--json"});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  return outcome.json()["memory"]["run"]["parts"]["weights, packed"];
}

double mean_logprob(const std::string& format) {
  const Outcome outcome = run_jige({"score", TinyRun::get().model(), "--quantize", format},
                                   dump_json(Json{{"text", kText}}) + "\n");
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  const Json scored = outcome.json();
  return scored["logprob"].get<double>() / static_cast<double>(scored["logprobs"].size());
}

TEST(Quantised, InspectPredictsTheMemoryOfEveryFormat) {
  const auto whole = static_cast<double>(packed_bytes("none"));
  const auto q8 = static_cast<double>(packed_bytes("q8"));
  const auto q4 = static_cast<double>(packed_bytes("q4"));
  EXPECT_NEAR(q8 / whole, 8.5 / 16, 0.1);
  EXPECT_LT(q4, 0.85 * q8);  // the head stays at 8 bits
}

TEST(Quantised, InspectSaysWhatAFolderInFewBitsHolds) {
  const std::string folder = std::string(JIGE_SOURCE_DIR) + "/tests/fixtures/quantised/gptq4";
  const Outcome outcome = run_jige({"inspect", folder, "--json"});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  const Json json = outcome.json();
  EXPECT_EQ(json["weights"]["quantised"], "gptq: 4 bits in groups of 16");
  EXPECT_EQ(json["weights"]["dtype"], "bf16");
  EXPECT_EQ(json["weights"]["parameters"], json["parameters"]);
  EXPECT_FALSE(json.contains("problem"));
  EXPECT_GT(json["memory"]["run"]["parts"]["weights, packed"], 0);
}

TEST(Quantised, ScoresLieCloseToThoseOfTheWholeModel) {
  const double whole = mean_logprob("none");
  const double q8 = mean_logprob("q8");
  EXPECT_NE(q8, whole);
  EXPECT_NEAR(q8, whole, 0.02);
  EXPECT_NEAR(mean_logprob("q4"), whole, 0.3);
}

TEST(Quantised, AnswersAreTheSameEveryTimeAndForAnyThreads) {
  for (const char* format : {"q8", "q4"}) {
    const auto generate = [&](const char* threads) {
      return run_jige({"generate", TinyRun::get().model(), "--quantize", format, "--prompt", kText,
                       "--max-new-tokens", "12", "--temperature", "0", "--threads", threads,
                       "--json"});
    };
    const Outcome one = generate("1");
    ASSERT_EQ(one.exit_code, 0) << one.err;
    EXPECT_EQ(one.json()["tokens"], generate("2").json()["tokens"]) << format;
    EXPECT_EQ(one.json()["tokens"].size(), 12u);
  }
}

TEST(Quantised, UnknownFormatsAreNamed) {
  const Outcome outcome =
      run_jige({"generate", TinyRun::get().model(), "--quantize", "q5", "--prompt", "x"});
  expect_error(outcome, 2, {"--quantize", "q5", "q8", "q4"});
}

// Trains an adapter on a model; `more` may name --quantize.
Outcome tune(const std::string& model, const std::string& data, const std::string& out,
             const std::vector<std::string>& more) {
  std::vector<std::string> words = {"train", "--lora", "--json", "--from", model, "--data", data};
  for (const char* word :
       {"--steps", "2", "--batch-tokens", "1024", "--micro-batch-tokens", "1024", "--dtype", "auto",
        "--threads", "1", "--lora-rank", "4", "--packing", "stream"}) {
    words.emplace_back(word);
  }
  words.insert(words.end(), {"--out", out});
  words.insert(words.end(), more.begin(), more.end());
  return run_jige(words);
}

// What inspect says of such a run.
Json inspected_tuning(const std::string& model, const std::string& format) {
  const Outcome outcome =
      run_jige({"inspect", model, "--micro-batch-tokens", "1024", "--threads", "1", "--dtype",
                "auto", "--lora-rank", "4", "--quantize", format, "--json"});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  return outcome.json()["memory"]["train_lora"];
}

// A model that is large beside the process, and data that fill its micro-batches, in the type that
// training takes on this processor: without instructions for bf16 its kernels leave parts of what
// is planned for it untouched.
TEST(Quantised, AnAdapterIsTrainedInTheMemoryThatInspectPredicts) {
  if (kSanitized) GTEST_SKIP() << "sanitizers take memory of their own";
  const TestFolder folder;
  ASSERT_EQ(run_jige({"corpus", "--documents", "1000", "--out", folder / "data"}).exit_code, 0);
  const std::string data = folder / "data/train.jsonl";
  std::vector<std::string> words = {"train", "--data", data,           "--size",
                                    "tiny",  "--out",  folder / "base"};
  for (const char* word :
       {"--width", "384", "--heads", "6", "--layers", "4", "--ffn", "1024", "--batch-tokens", "512",
        "--micro-batch-tokens", "512", "--steps", "1"}) {
    words.emplace_back(word);
  }
  const Outcome base = run_jige(words);
  ASSERT_EQ(base.exit_code, 0) << base.err;
  const std::string model = folder / "base/model";
  for (const std::string format : {"none", "q8", "q4"}) {
    SCOPED_TRACE(format);
    const std::vector<std::string> quantize = {"--quantize", format};
    const Outcome tuned = tune(model, data, folder / format, quantize);
    ASSERT_EQ(tuned.exit_code, 0) << tuned.err;
    const Json memory = tuned.json_lines().back()["memory"];
    EXPECT_EQ(memory["arena_peak_bytes"], memory["arena_predicted_bytes"]);
    const auto predicted = memory["process_predicted_bytes"].get<int64_t>();
    EXPECT_NEAR(memory["process_private_peak_bytes"].get<double>() / static_cast<double>(predicted),
                1, 0.05);
    const Json inspected = inspected_tuning(model, format);
    const auto index = memory["index_bytes"].get<int64_t>();
    EXPECT_EQ(inspected["total_bytes"].get<int64_t>() + index, predicted);
    int64_t sum = 0;
    for (const auto& [name, bytes] : inspected["parts"].items()) sum += bytes.get<int64_t>();
    EXPECT_EQ(sum + index, predicted);
    // Refused before the run where the limit is a byte less.
    std::vector<std::string> limited = quantize;
    limited.insert(limited.end(), {"--memory-limit", std::to_string(predicted - 1)});
    expect_error(tune(model, data, folder / "refused", limited), 6,
                 {"training needs", "the limit is"});
  }
}

TEST(Quantised, AnAdapterMergesIntoTheWholeWeightsAndRunsOnQuantisedOnes) {
  const TestFolder folder;
  const Outcome tuned =
      tune(TinyRun::get().model(), TinyRun::get().corpus(), folder / "run", {"--quantize", "q4"});
  ASSERT_EQ(tuned.exit_code, 0) << tuned.err;
  const Json model = run_jige({"inspect", folder / "run/model", "--json"}).json();
  EXPECT_EQ(
      model["weights"]["parameters"],
      run_jige({"inspect", TinyRun::get().model(), "--json"}).json()["weights"]["parameters"]);
  for (const char* format : {"none", "q4"}) {
    const Outcome answer = run_jige({"generate", folder / "run", "--quantize", format, "--prompt",
                                     "Hi", "--max-new-tokens", "3"});
    EXPECT_EQ(answer.exit_code, 0) << answer.err;
  }
  const Outcome again =
      tune(TinyRun::get().model(), TinyRun::get().corpus(), folder / "run", {"--quantize", "q8"});
  expect_error(again, 2, {"quantize", "\"q4\"", "\"q8\"", "the old value of --quantize"});
  const Outcome same =
      tune(TinyRun::get().model(), TinyRun::get().corpus(), folder / "run", {"--quantize", "q4"});
  EXPECT_EQ(same.exit_code, 0) << same.err;
}

TEST(Quantised, TrainingAllWeightsIsNotForQuantisedOnes) {
  const TestFolder folder;
  const Outcome outcome =
      run_jige({"train", "--from", TinyRun::get().model(), "--data", TinyRun::get().corpus(),
                "--quantize", "q8", "--out", folder / "run"});
  expect_error(outcome, 2, {"--quantize q8", "add --lora", "leave it out"});
  const Outcome devices = tune(TinyRun::get().model(), TinyRun::get().corpus(), folder / "run",
                               {"--quantize", "q8", "--devices", "2"});
  EXPECT_NE(devices.exit_code, 0);
  EXPECT_THAT(devices.err, HasSubstr("--quantize q8 with a pipeline of devices"));
}

}  // namespace
}  // namespace jige::integration
