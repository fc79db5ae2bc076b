// Preference tuning as a user does it: jige train --dpo.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/file.h"
#include "integration/tiny_run.h"

namespace jige::integration {
namespace {

using ::testing::HasSubstr;

// Chats whose answer shall be short, not long.
std::string chat_pairs(int count) {
  std::string lines;
  for (int i = 0; i < count; ++i) {
    const Json question = {{"role", "user"}, {"content", "What is " + std::to_string(i) + "?"}};
    const Json chosen = {{"role", "assistant"}, {"content", "It is a number."}};
    const Json rejected = {{"role", "assistant"}, {"content", "Tom has a bell and Mia a kite."}};
    lines += dump_json(Json{{"prompt", Json::array({question})},
                            {"chosen", Json::array({chosen})},
                            {"rejected", Json::array({rejected})}}) +
             "\n";
  }
  return lines;
}

std::vector<std::string> dpo_arguments(const std::string& data, const std::string& out) {
  std::vector<std::string> words = {
      "train", "--from", TinyRun::get().run(), "--dpo", "--data", data, "--out", out};
  for (const char* word :
       {"--json", "--steps", "12", "--batch-tokens", "384", "--micro-batch-tokens", "192",
        "--eval-share", "0.2", "--eval-every", "6", "--threads", "1", "--dtype", "f32"}) {
    words.emplace_back(word);
  }
  return words;
}

class Preference : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_EQ(TinyRun::get().training().exit_code, 0);
    ASSERT_TRUE(write_file_atomic(data(), chat_pairs(40)));
  }
  std::string data() const { return folder_ / "pairs.jsonl"; }

  TestFolder folder_;
};

TEST_F(Preference, RunsFromAModelToOneThatPrefersTheChosenAnswers) {
  const std::vector<std::vector<std::string>> kinds = {
      {"--lr", "1e-3"}, {"--lora", "--lr", "1e-2", "--quantize", "q8"}};
  for (const std::vector<std::string>& more : kinds) {
    SCOPED_TRACE(more.size());
    const std::string out = folder_ / ("run" + std::to_string(more.size()));
    const Outcome outcome = run_with(dpo_arguments(data(), out), more);
    ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
    const JsonLines lines = outcome.json_lines();
    EXPECT_EQ(lines[0]["margin"], 0.0);
    const Json& end = lines.back();
    EXPECT_EQ(end["eval"]["accuracy"], 1.0) << dump_json(end);
    EXPECT_GT(end["eval"]["margin"].get<double>(), 0.1);
    EXPECT_EQ(end["memory"]["arena_peak_bytes"], end["memory"]["arena_predicted_bytes"]);
    EXPECT_EQ(run_jige({"report", out}).exit_code, 0);
    EXPECT_THAT(read_file(out + "/report.html").value_or(""), HasSubstr("Reward margin"));
    const Outcome answer = run_jige({"generate", out, "--prompt", "It", "--max-new-tokens", "3"});
    EXPECT_EQ(answer.exit_code, 0) << answer.err;
  }
}

TEST_F(Preference, GoesOnWhereItWasKilledWithTheSameWeights) {
  const std::string whole = folder_ / "whole", parts = folder_ / "parts";
  ASSERT_EQ(run_with(dpo_arguments(data(), whole), {}).exit_code, 0);
  std::vector<std::string> words = dpo_arguments(data(), parts);
  words.insert(words.end(), {"--save-every", "1"});
  kill_behind_checkpoint(words, parts);
  const Outcome outcome = run_jige(words);
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_TRUE(model_of(parts) == model_of(whole));
}

TEST_F(Preference, GivesOnRanksTheWeightsOfOneProcessAlsoAfterAKill) {
  const std::string alone = folder_ / "alone";
  const Outcome one = run_with(dpo_arguments(data(), alone), {});
  ASSERT_EQ(one.exit_code, 0) << one.err;
  const std::string expected = model_of(alone);
  for (const bool divided : {false, true}) {
    const std::string out = folder_ / (divided ? "divided" : "ranks");
    std::vector<std::string> words = dpo_arguments(data(), out);
    words.insert(words.end(), {"--ranks", "3", "--save-every", "1"});
    if (divided) words.emplace_back("--shard-optimizer");
    const TestFolder streams;
    Process process(words, streams.path());
    wait_for_checkpoint(out, process);
    for (const pid_t rank : ranks_of(process)) kill(rank, SIGKILL);
    process.wait();
    const Outcome outcome = run_jige(words);
    ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
    EXPECT_TRUE(model_of(out) == expected);
    const JsonLines lines = outcome.json_lines();
    const Json& end = lines.back();
    EXPECT_EQ(end["memory"]["arena_peak_bytes"], end["memory"]["arena_predicted_bytes"]);
  }
}

TEST_F(Preference, SaysWhatIsWrongBeforeItStarts) {
  const std::string out = folder_ / "run";
  const std::vector<std::string> words = dpo_arguments(data(), out);
  expect_error(run_with(words, {"--devices", "2"}), 5, {"--dpo", "devices"});
  expect_error(run_with(words, {"--packing", "stream"}), 2, {"--packing", "--dpo"});
  expect_error(run_with(words, {"--context", "97"}), 2, {"--context", "96"});
  expect_error(run_with(words, {"--dpo-label-smoothing", "0.5"}), 2, {"--dpo-label-smoothing"});
  expect_error(run_jige({"train", "--dpo", "--data", data(), "--out", out}), 2, {"--from"});
  expect_error(run_jige({"train", "--from", TinyRun::get().run(), "--dpo-beta", "0.2", "--data",
                         data(), "--out", out}),
               2, {"--dpo-beta", "add --dpo"});
  expect_error(run_jige({"train", "--from", TinyRun::get().run(), "--data", data(), "--out", out,
                         "--steps", "1"}),
               2, {"pairs.jsonl:1", "add --dpo"});
  const std::string bad = folder_ / "bad.jsonl";
  ASSERT_TRUE(write_file_atomic(
      bad, chat_pairs(3) + R"({"prompt": "a", "chosen": "b", "rejected": "b"})" + "\n"));
  expect_error(run_jige(dpo_arguments(bad, out)), 2, {"bad.jsonl:4", "\"chosen\"", "the same"});
}

}  // namespace
}  // namespace jige::integration
