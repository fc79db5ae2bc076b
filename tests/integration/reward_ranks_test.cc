// jige train --grpo as one job of several processes: the model of one process, what becomes of it
// when a rank is killed or its program fails, and a step that is left by Ctrl-C.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "formats/checkpoint.h"
#include "integration/reward_run.h"

namespace jige::integration {
namespace {

using ::testing::HasSubstr;
using RewardWords = std::vector<std::string>;

// The same with another value of a flag that is there.
RewardWords with_value(RewardWords words, const std::string& flag, const std::string& value) {
  const auto found = std::ranges::find(words, flag);
  EXPECT_NE(found, words.end()) << flag;
  if (found != words.end()) *(found + 1) = value;
  return words;
}

class RewardRanks : public RewardRun {
 protected:
  RewardWords arguments(const std::string& out, const std::string& command,
                        const RewardWords& more) const {
    RewardWords words = grpo_arguments(data(), folder_ / out);
    words.insert(words.end(), {"--reward-command", command, "--steps", "8", "--save-every", "1"});
    words.insert(words.end(), more.begin(), more.end());
    return words;
  }
};

TEST_F(RewardRanks, MakeTheModelOfOneProcessHereAndOverARendezvous) {
  const std::string command = letter_judge();
  const RewardWords held = {"--eval-data", data(), "--eval-every", "4", "--kl", "0.01"};
  ASSERT_EQ(run_with(arguments("alone", command, {}), held).exit_code, 0);
  const Outcome three = run_with(arguments("three", command, {"--ranks", "3"}), held);
  ASSERT_EQ(three.exit_code, 0) << three.err;
  EXPECT_TRUE(model_of(folder_ / "three") == model_of(folder_ / "alone"));
  for (const Json& line : three.json_lines()) {
    if (line["kind"] != "step" || line["logprob_gap"].is_null()) continue;
    EXPECT_EQ(line["logprob_gap"], 0.0);
    EXPECT_EQ(line["ranks"], 3);
  }
  const Json end = three.json_lines().back();
  EXPECT_EQ(end["memory"]["arena_peak_bytes"], end["memory"]["arena_predicted_bytes"]);

  const std::string place = "127.0.0.1:" + std::to_string(free_port());
  const auto rank = [&](const char* number) {
    return arguments("hosts", command,
                     {"--rank", number, "--world", "2", "--rendezvous", place, "--transport", "tcp",
                      "--shard-optimizer"});
  };
  const TestFolder streams;
  RewardWords other_words = rank("1");
  other_words.insert(other_words.end(), held.begin(), held.end());
  Process other(other_words, streams.path());
  const Outcome first = run_with(rank("0"), held);
  EXPECT_EQ(first.exit_code, 0) << first.err;
  EXPECT_EQ(other.wait().exit_code, 0);
  EXPECT_TRUE(model_of(folder_ / "hosts") == model_of(folder_ / "alone"));
}

TEST_F(RewardRanks, GoOnWithOthersWhenOneWasKilled) {
  const std::string command = letter_judge();
  const auto words = [&](const std::string& out, RewardWords more) {
    more.insert(more.end(), {"--lora", "--quantize", "q8"});
    return with_value(arguments(out, command, more), "--steps", "30");
  };
  ASSERT_EQ(run_jige(words("alone", {})).exit_code, 0);
  const TestFolder streams;
  Process job(words("run", {"--ranks", "3", "--shard-optimizer"}), streams.path());
  EXPECT_LT(kill_rank(job, folder_ / "run", 3, 1).seconds, 6);
  const Outcome again = run_jige(words("run", {"--ranks", "2"}));
  ASSERT_EQ(again.exit_code, 0) << again.err;
  EXPECT_TRUE(model_of(folder_ / "run") == model_of(folder_ / "alone"));
}

TEST_F(RewardRanks, EndBehindACheckpointWhenTheProgramOfOneFails) {
  const std::string mark = folder_ / "mark";
  // Of the third step's first; the programs of other ranks have no answer for a long time then.
  const std::string command = letter_judge(
      "  case \"$line\" in *'\"step\":3'*)\n"
      "    if mkdir '" +
      mark +
      "' 2>/dev/null\n"
      "    then exit 5; else sleep 50; fi;;\n"
      "  esac\n");
  const StopWatch watch;
  const Outcome outcome = run_jige(arguments("run", command, {"--ranks", "3"}));
  EXPECT_LT(watch.seconds(), 30);
  EXPECT_EQ(outcome.exit_code, 8) << outcome.err;
  EXPECT_THAT(outcome.err, HasSubstr("step 3 failed; the checkpoint of step 2 is whole"));
  EXPECT_THAT(outcome.err, HasSubstr("ended with exit code 5"));
}

// Whether a file comes to be there within half a minute.
bool comes(const std::string& path) {
  for (const StopWatch watch; watch.seconds() < 30;) {
    if (!read_file(path).value_or("").empty()) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return false;
}

TEST_F(RewardRanks, LeaveAStepOnCtrlCAndGoOnWithTheSameBits) {
  // A program that has no answer in the third step, unless somebody was there before.
  const std::string mark = folder_ / "mark";
  const std::string command = letter_judge(
      "  case \"$line\" in *'\"step\":3'*)\n"
      "    if [ ! -e '" +
      mark +
      "' ]; then\n"
      "      echo $$ > '" +
      mark +
      "'; sleep 60; fi;;\n"
      "  esac\n");
  ASSERT_TRUE(write_file_atomic(mark, "there\n"));
  ASSERT_EQ(run_jige(arguments("alone", command, {})).exit_code, 0);
  for (const RewardWords& ranks : {RewardWords{}, RewardWords{"--ranks", "2"}}) {
    const std::string out = "run" + std::to_string(ranks.size());
    ASSERT_EQ(unlink(mark.c_str()), 0);
    const TestFolder streams;
    Process job(arguments(out, command, ranks), streams.path());
    ASSERT_TRUE(comes(mark)) << job.wait().err;
    const StopWatch watch;
    job.send(SIGINT);
    const Outcome stopped = job.wait();
    EXPECT_LT(watch.seconds(), 5);
    EXPECT_EQ(stopped.exit_code, 130) << stopped.err;
    EXPECT_THAT(stopped.err, HasSubstr("after step 2 of 8, with a checkpoint"));
    EXPECT_TRUE(gone(std::stoi(read_text(mark))));  // the program went with it
    const Outcome again = run_jige(arguments(out, command, ranks));
    ASSERT_EQ(again.exit_code, 0) << again.err;
    EXPECT_TRUE(model_of(folder_ / out) == model_of(folder_ / "alone"));
  }
}

}  // namespace
}  // namespace jige::integration
