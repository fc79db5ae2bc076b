// Weights of 8 and 4 bits, as a user has them: --quantize of the commands that run a model.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

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

}  // namespace
}  // namespace jige::integration
