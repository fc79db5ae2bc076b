// `jige sweep` as a user has it: its trials are the same runs alone, whatever ends it in between.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>
#include <thread>

#include "integration/process.h"
#include "integration/tiny_run.h"

namespace jige::integration {
namespace {

using ::testing::HasSubstr;

const std::vector<std::string> kRates = {"3e-3", "1e-3"};
const std::vector<std::string> kShares = {"0.2", "0.6"};

// Flags of `jige train` but those of the grid.
std::vector<std::string> common_words(int steps) {
  std::vector<std::string> words = tiny_train_arguments(TinyRun::get().corpus(), steps);
  words.erase(words.begin());
  const auto rate = std::ranges::find(words, "--lr");
  words.erase(rate, rate + 2);
  words.insert(words.end(), {"--schedule", "wsd"});
  return words;
}

std::vector<std::string> sweep_words(const std::string& out, int steps,
                                     const std::vector<std::string>& more = {}) {
  std::vector<std::string> words = {
      "sweep", "--out", out, "--grid", "lr=3e-3,1e-3", "--grid", "decay-share=0.2,0.6"};
  words.insert(words.end(), more.begin(), more.end());
  words.push_back("--");
  const std::vector<std::string> common = common_words(steps);
  words.insert(words.end(), common.begin(), common.end());
  return words;
}

// Losses by step and kind, as their bits stand in the log.
std::map<std::string, std::string> losses_of(const std::string& run) {
  std::map<std::string, std::string> found;
  const std::string text = read_text(run + "/log.jsonl");
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = text.find('\n', begin);
    const Json record = *parse_json(text.substr(begin, end - begin), "log");
    begin = end + 1;
    if (record["kind"] != "step" && record["kind"] != "eval") continue;
    const std::string key = dump_json(record["kind"]) + dump_json(record["step"]);
    EXPECT_TRUE(found.emplace(key, dump_json(record["loss"])).second) << key << " is there twice";
  }
  return found;
}

void expect_runs_alone(const std::string& sweep, const TestFolder& folder, int steps) {
  for (const std::string& rate : kRates) {
    for (const std::string& share : kShares) {
      const std::string name = "lr=" + rate + ",decay-share=" + share;
      SCOPED_TRACE(name);
      const std::string alone = folder / ("alone-" + name);
      std::vector<std::string> words = {"train", "--lr",  rate, "--decay-share",
                                        share,   "--out", alone};
      const std::vector<std::string> common = common_words(steps);
      words.insert(words.end(), common.begin(), common.end());
      const Outcome run = run_jige(words);
      ASSERT_EQ(run.exit_code, 0) << run.err;
      EXPECT_EQ(losses_of(sweep + "/trials/" + name), losses_of(alone));
      EXPECT_TRUE(model_of(sweep + "/trials/" + name) == model_of(alone));
    }
  }
}

TEST(Sweep, SaysWhatItSharesAndWhatCameOfIt) {
  const TestFolder folder;
  const std::string out = folder / "sweep";
  const Outcome planned = run_jige(sweep_words(out, 30, {"--plan-only"}));
  ASSERT_EQ(planned.exit_code, 0) << planned.err;
  EXPECT_THAT(planned.out, HasSubstr("4 trials, 120 steps in all; 96 are run, for 24 (20 %)"));
  EXPECT_FALSE(exists(out + "/trials"));

  const Outcome outcome = run_jige(sweep_words(out, 30));
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_THAT(outcome.err, HasSubstr("trial 2 of 4, lr=3e-3 decay-share="));
  EXPECT_THAT(outcome.err, HasSubstr("left for all"));
  EXPECT_THAT(outcome.out, HasSubstr("held-out loss"));
  EXPECT_THAT(outcome.out, HasSubstr("trials/lr=1e-3,decay-share=0.6"));
  const Json record = *parse_json(read_text(out + "/sweep.json"), "sweep.json");
  EXPECT_EQ(record["steps"]["run"], 96);
  for (const Json& trial : record["trials"]) EXPECT_EQ(trial["state"], "done");

  // Each trial is a run as any other.
  const std::string trial = out + "/" + record["trials"][0]["folder"].get<std::string>();
  for (const std::vector<std::string>& words :
       {std::vector<std::string>{"report", trial},
        {"plot-loss", trial},
        {"inspect", trial},
        {"export", trial, "--gguf", folder / "a.gguf"},
        {"generate", trial, "--prompt", "Once", "--max-new-tokens", "4"}}) {
    const Outcome use = run_jige(words);
    EXPECT_EQ(use.exit_code, 0) << words[0] << ": " << use.err;
  }
  EXPECT_FALSE(exists(out + "/branches"));
  EXPECT_FALSE(exists(trial + "/checkpoints"));

  // Given again, nothing is left to do, and only JSON is on standard output.
  const Outcome again = run_jige(sweep_words(out, 30, {"--json"}));
  ASSERT_EQ(again.exit_code, 0) << again.err;
  ASSERT_EQ(again.json_lines().size(), 2u);
  EXPECT_EQ(again.json_lines()[0]["kind"], "plan");
  EXPECT_EQ(again.json_lines()[1]["kind"], "sweep");
  EXPECT_EQ(again.json_lines()[1]["trials"], record["trials"]);

  expect_error(run_jige(sweep_words(out, 31)), 2, {"sweep.json", "other flags"});
}

TEST(Sweep, AKilledSweepEndsLikeRunsAlone) {
  const TestFolder folder;
  const std::string out = folder / "sweep";
  constexpr int kSteps = 90;
  int killed = 0;
  for (int round = 0; round < 40; ++round) {
    const TestFolder streams;
    const uintmax_t before = logged_bytes(out);
    Process process(sweep_words(out, kSteps, {"--keep", "all"}), streams.path());
    const uintmax_t wanted = before + 2000 + 12000 * static_cast<uintmax_t>(round);
    wait_for_log(out, wanted, process);
    if (process.running()) process.send(SIGKILL);
    const Outcome outcome = process.wait();
    if (outcome.exit_code == 0) break;
    ASSERT_EQ(outcome.exit_code, 128 + SIGKILL) << outcome.err;
    ++killed;
  }
  EXPECT_GT(killed, 1);
  expect_runs_alone(out, folder, kSteps);
}

TEST(Sweep, TheBestAloneGoToTheEnd) {
  const TestFolder folder;
  const std::string out = folder / "sweep";
  const auto words = [&](std::vector<std::string> more) {
    more.insert(more.end(), {"--halving", "2"});
    std::vector<std::string> all = sweep_words(out, 24, more);
    all.insert(all.end(), {"--eval-every", "4"});
    return all;
  };
  const Outcome planned = run_jige(words({"--plan-only"}));
  ASSERT_EQ(planned.exit_code, 0) << planned.err;
  EXPECT_THAT(planned.out, HasSubstr("compared behind steps 8, 12, where one of 2 goes on"));
  const Outcome outcome = run_jige(words({"--json"}));
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_THAT(outcome.err, HasSubstr("behind step 8 the best 2 of 4 trials go on, first: "));
  EXPECT_THAT(outcome.err, HasSubstr("behind step 12 the best of 2 trials goes on alone: "));
  std::vector<Json> rungs;
  for (const Json& line : outcome.json_lines()) {
    if (line["kind"] == "rung") rungs.push_back(line);
  }
  ASSERT_EQ(rungs.size(), 2u);
  EXPECT_EQ(rungs[0]["trials"].size(), 4u);
  EXPECT_EQ(rungs[1]["trials"].size(), 2u);
  EXPECT_LE(rungs[1]["trials"][0]["held_out"], rungs[1]["trials"][1]["held_out"]);
  const Json record = outcome.json_lines().back();
  EXPECT_EQ(record["best"], rungs[1]["trials"][0]["name"]);
  const std::string best = out + "/trials/" + record["best"].get<std::string>();
  EXPECT_EQ(run_jige({"generate", best, "--prompt", "Once", "--max-new-tokens", "4"}).exit_code, 0);
  expect_error(run_jige({"chat", out}), 3, {"that of a sweep", "the best, " + best});
  expect_error(run_jige({"report", out}), 3, {"that of a sweep", best});
  // The command that makes a trial that was dropped is in the message, and does.
  const std::string dropped = rungs[0]["trials"].back()["name"];
  const Outcome refused = run_jige({"export", out + "/trials/" + dropped});
  expect_error(refused, 3, {"--keep all", "jige train --data "});
  expect_error(run_jige({"chat", out + "/trials/" + dropped + "/"}), 3, {"jige train --data "});
  const size_t begin = refused.err.find("jige train --data ");
  const std::string line = refused.err.substr(begin, refused.err.find(" --out FOLDER") - begin);
  std::vector<std::string> again;
  std::istringstream given(line.substr(line.find(' ')));
  for (std::string word; given >> word;) again.push_back(word);
  const Outcome alone = run_with(again, {"--out", folder / "alone"});
  EXPECT_EQ(alone.exit_code, 0) << alone.err;
  const auto whole = losses_of(folder / "alone");
  for (const auto& [key, loss] : losses_of(out + "/trials/" + dropped)) {
    EXPECT_EQ(whole.at(key), loss) << key;
  }
  expect_error(run_jige(sweep_words(out, 24)), 2, {"sweep.json", "other flags"});
  expect_error(run_jige(sweep_words(folder / "b", 24, {"--first-rung", "3"})), 2, {"--halving"});
}

TEST(Sweep, ASignalStopsBehindACheckpoint) {
  const TestFolder folder, streams;
  const std::string out = folder / "sweep";
  Process process(sweep_words(out, 100000, {"--json"}), streams.path());
  for (int i = 0; i < 6000 && process.running() && !exists(out + "/sweep.json"); ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  expect_error(run_jige(sweep_words(out, 100000)), 8, {"another run is writing"});
  process.send(SIGINT);
  const Outcome outcome = process.wait();
  EXPECT_EQ(outcome.exit_code, 130) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("with a checkpoint; the same command goes on"));
  EXPECT_EQ(outcome.json_lines().back()["error"]["exit_code"], 130);
}

}  // namespace
}  // namespace jige::integration
