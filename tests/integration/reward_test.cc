// Learning from rewards as a user does it: jige train --grpo.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/file.h"
#include "integration/reward_run.h"

namespace jige::integration {
namespace {

using ::testing::HasSubstr;

double mean_reward(const JsonLines& lines, size_t begin, size_t end) {
  double sum = 0;
  for (size_t i = begin; i < end; ++i) sum += lines[i]["reward"].get<double>();
  return sum / static_cast<double>(end - begin);
}

TEST_F(RewardRun, LearnsWhatARuleOrAProgramRewards) {
  const std::string command = letter_judge();
  const std::vector<std::vector<std::string>> kinds = {
      {"--reward", "contains", "--steps", "16", "--eval-data", data(), "--eval-every", "8"},
      {"--reward", "contains", "--steps", "20", "--overlong", "both", "--overlong-margin", "4",
       "--advantage", "batch"},
      {"--reward-command", command, "--steps", "10", "--kl", "0.01"}};
  for (const std::vector<std::string>& more : kinds) {
    SCOPED_TRACE(more[0]);
    const std::string out = folder_ / ("run" + std::to_string(more.size()));
    const Outcome outcome = run_with(grpo_arguments(data(), out), more);
    ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
    JsonLines steps;
    for (const Json& line : outcome.json_lines()) {
      if (line["kind"] == "step") steps.push_back(line);
      if (line["kind"] == "step" && !line["logprob_gap"].is_null()) {
        EXPECT_EQ(line["logprob_gap"], 0.0);
      }
    }
    EXPECT_GT(mean_reward(steps, steps.size() - 3, steps.size()),
              1.2 * mean_reward(steps, 0, 3) + 0.05);
    const Json end = outcome.json_lines().back();
    EXPECT_EQ(end["memory"]["arena_peak_bytes"], end["memory"]["arena_predicted_bytes"]);
    EXPECT_EQ(run_jige({"report", out}).exit_code, 0);
    EXPECT_THAT(read_file(out + "/report.html").value_or(""), HasSubstr("groups without signal"));
    EXPECT_EQ(run_jige({"generate", out, "--prompt", "It", "--max-new-tokens", "3"}).exit_code, 0);
  }
}

TEST_F(RewardRun, IsWhatInspectSaysInMemory) {
  const std::string out = folder_ / "run";
  for (const std::vector<std::string>& more : {std::vector<std::string>{},
                                               {"--kl", "0.1"},
                                               {"--lora", "--quantize", "q8", "--kl", "0.1"},
                                               {"--ranks", "2", "--draw-at-once", "7"}}) {
    std::vector<std::string> planned = grpo_arguments(data(), out);
    planned.insert(planned.end(), {"--reward", "exact", "--steps", "2", "--plan-only"});
    const Outcome plan = run_with(planned, more);
    ASSERT_EQ(plan.exit_code, 0) << plan.err;
    std::vector<std::string> shown = {"inspect", TinyRun::get().run(), "--grpo", "--json"};
    for (const char* word : {"--prompts-per-step", "4", "--group", "6", "--context", "96",
                             "--micro-batch-tokens", "192", "--threads", "1", "--dtype", "f32"}) {
      shown.emplace_back(word);
    }
    const bool lora = !more.empty() && more[0] == "--lora";
    shown.insert(shown.end(), more.begin() + (lora ? 1 : 0), more.end());
    const Outcome inspected = run_jige(shown);
    ASSERT_EQ(inspected.exit_code, 0) << inspected.err;
    const Json table = inspected.json()["memory"][lora ? "train_lora" : "train"];
    const Json memory = plan.json()["memory"];
    EXPECT_EQ(table["parts"]["to draw answers"], memory["drawing_bytes"]);
    EXPECT_EQ(table["parts"].value("the first weights", 0), memory["reference_bytes"]);
    EXPECT_EQ(table["total_bytes"].get<int64_t>() + memory["prompt_bytes"].get<int64_t>() +
                  memory["index_bytes"].get<int64_t>(),
              plan.json()["memory_predicted_bytes"]);
  }
  expect_error(run_jige({"inspect", TinyRun::get().run(), "--group", "4"}), 2, {"--grpo"});
  expect_error(run_jige({"inspect", TinyRun::get().run(), "--grpo", "--device", "cuda"}), 5,
               {"--grpo"});
}

TEST_F(RewardRun, GoesOnWhereItWasKilledWithTheSameWeights) {
  const std::string whole = folder_ / "whole", parts = folder_ / "parts";
  const std::vector<std::string> more = {"--reward", "contains",     "--steps",
                                         "8",        "--save-every", "1"};
  ASSERT_EQ(run_with(grpo_arguments(data(), whole), more).exit_code, 0);
  std::vector<std::string> words = grpo_arguments(data(), parts);
  words.insert(words.end(), more.begin(), more.end());
  kill_behind_checkpoint(words, parts);
  const Outcome outcome = run_jige(words);
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_TRUE(model_of(parts) == model_of(whole));
}

TEST_F(RewardRun, SaysWhenNothingWasLearned) {
  std::vector<std::string> words = grpo_arguments(data(), folder_ / "same");
  words.insert(words.end(), {"--steps", "2"});
  const Outcome same = run_with(words, {"--reward-command", "while read x; do echo 0.5; done"});
  ASSERT_EQ(same.exit_code, 0) << same.err;
  EXPECT_THAT(same.err, HasSubstr("warning: nothing was learned in 2 steps"));
  EXPECT_THAT(same.err, HasSubstr("loss 0.000  reward 0.500"));
  words = grpo_arguments(data(), folder_ / "other");
  words.insert(words.end(), {"--steps", "2"});
  const Outcome other = run_with(words, {"--reward-command", letter_judge()});
  ASSERT_EQ(other.exit_code, 0) << other.err;
  EXPECT_THAT(other.err, testing::Not(HasSubstr("nothing was learned")));
}

TEST_F(RewardRun, SaysWhatIsWrong) {
  const std::string out = folder_ / "run";
  std::vector<std::string> words = grpo_arguments(data(), out);
  words.insert(words.end(), {"--steps", "2"});
  expect_error(run_jige(words), 2, {"--reward", "--reward-command"});
  expect_error(run_with(words, {"--reward-command", "exit 3"}), 8,
               {"step 1 failed", "ended with exit code 3"});
  expect_error(run_with(words, {"--reward-command", "while read x; do echo good; done"}), 4,
               {"is no reward"});
  expect_error(run_with(words, {"--reward-command", "sleep 60", "--reward-timeout", "0.2"}), 8,
               {"no answer to line 1 of 24"});
  words.insert(words.end(), {"--reward", "contains"});
  expect_error(run_with(words, {"--overlong-margin", "3"}), 2, {"--overlong penalty"});
  expect_error(run_with(words, {"--overlong", "both", "--overlong-margin", "13"}), 2,
               {"--overlong-margin is 13", "between 1 and 12"});
  expect_error(run_with(words, {"--devices", "2"}), 5, {"--grpo", "--devices"});
  expect_error(run_with(words, {"--dpo"}), 2, {"--dpo", "--grpo"});
  expect_error(run_with(words, {"--batch-tokens", "64"}), 2, {"--batch-tokens", "--grpo"});
  expect_error(run_with(words, {"--reward-timeout", "3"}), 2, {"--reward-command"});
  expect_error(run_jige({"train", "--from", TinyRun::get().run(), "--group", "4", "--data", data(),
                         "--out", out}),
               2, {"--group", "add --grpo"});
  expect_error(run_jige({"train", "--grpo", "--reward", "exact", "--data", data(), "--out", out}),
               2, {"--from"});
}

}  // namespace
}  // namespace jige::integration
