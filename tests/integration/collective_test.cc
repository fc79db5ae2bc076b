// jige bench collective: what becomes of its ranks on Ctrl-C, and what it refuses.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <chrono>
#include <nlohmann/json.hpp>
#include <thread>
#include <tuple>

#include "base/clock.h"
#include "base/cpu.h"
#include "integration/ended_by_signal.h"
#include "integration/process.h"
#include "integration/tiny_run.h"

namespace jige::integration {
namespace {

using ::testing::HasSubstr;
using Words = std::vector<std::string>;

constexpr double kSoonSeconds = 5;  // long before any timeout, on a machine that others use

std::string free_address() { return "127.0.0.1:" + std::to_string(free_port()); }

Words rank_words(const std::string& rendezvous, const char* rank) {
  return {"bench",       "collective", "--rank", rank, "--world", "2",  "--rendezvous", rendezvous,
          "--transport", "tcp",        "-b",     "8M", "-e",      "8M", "-n",           "100000"};
}

double seconds_to_end(Process& process, Outcome& outcome) {
  const StopWatch watch;
  process.send(SIGINT);
  outcome = process.wait();
  return watch.seconds();
}

TEST(Collective, ARankThatWaitsForOthersToComeEndsOnCtrlC) {
  Words train = tiny_train_arguments(TinyRun::get().corpus(), 4);
  const TestFolder folder;
  train.insert(train.end(), {"--out", folder / "run", "--rank", "0", "--world", "2", "--rendezvous",
                             free_address()});
  for (const Words& words :
       {rank_words(free_address(), "0"), rank_words(free_address(), "1"), train}) {
    const TestFolder streams;
    Process rank(words, streams.path());
    rank.await_handler(SIGINT);
    std::this_thread::sleep_for(std::chrono::milliseconds(400));
    Outcome outcome;
    EXPECT_LT(seconds_to_end(rank, outcome), kSoonSeconds);
    EXPECT_EQ(outcome.exit_code, 130) << outcome.err;
    EXPECT_THAT(outcome.err, HasSubstr("interrupted before all 2 ranks had come"));
  }
}

TEST(Collective, ARankEndsOnCtrlCWhileAnotherStandsStillAndIsNamedByIt) {
  const std::string rendezvous = free_address();
  const TestFolder one, two;
  Process stopped(rank_words(rendezvous, "0"), one.path());
  Process other(rank_words(rendezvous, "1"), two.path());
  for (int i = 0; i < 2000 && stopped.running(); ++i) {
    if (exists(one / "out") && !read_text(one / "out").empty()) break;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  other.send(SIGSTOP);
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  Outcome outcome;
  EXPECT_LT(seconds_to_end(stopped, outcome), kSoonSeconds);
  EXPECT_EQ(outcome.exit_code, 130) << outcome.err;
  EXPECT_THAT(outcome.err, HasSubstr("interrupted in the middle of a collective"));
  other.send(SIGCONT);
  const Outcome left = other.wait();
  EXPECT_EQ(left.exit_code, 8) << left.err;
  EXPECT_THAT(left.err, HasSubstr("rank 0 ("));
  EXPECT_THAT(left.err, HasSubstr("reports: interrupted"));
}

TEST(Collective, RanksThatWereStartedHereEndWithTheirStarter) {
  for (const char* transport : {"shm", "tcp"}) {
    expect_signal_ends({"bench", "collective", "--ranks", "3", "--transport", transport, "-b", "8M",
                        "-e", "8M", "-n", "100000"},
                       SIGTERM, 3);
  }
  expect_signal_ends({"bench", "collective", "--ranks", "3", "--transport", "threads", "-b", "8M",
                      "-e", "8M", "-n", "100000"},
                     SIGINT, 0);
}

TEST(Collective, MoreThanTheMachineHoldsIsRefusedBeforeAnyRankStarts) {
  const StopWatch watch;
  for (const char* transport : {"shm", "threads"}) {
    expect_error(
        run_jige({"bench", "collective", "--ranks", "4", "--transport", transport, "-e", "64TiB"}),
        6, {"--max-bytes", "64.0 TiB", "4 ranks here", "this machine has"});
  }
  expect_error(run_jige({"bench", "collective", "all_gather", "--ranks", "2", "-f", "1000", "-e",
                         "1048576TiB"}),
               6, {"--max-bytes", "all_gather"});
  EXPECT_LT(watch.seconds(), 30);
  const std::string rendezvous = free_address();
  const TestFolder folder;
  Words words = {"bench", "collective",   "--rank",   "1",  "--world",
                 "2",     "--rendezvous", rendezvous, "-e", "64TiB"};
  Process other(words, folder.path());
  words[3] = "0";
  expect_error(run_jige(words), 6, {"--max-bytes", "2 ranks here"});
  expect_error(other.wait(), 6, {"--max-bytes", "2 ranks here"});
}

TEST(Collective, MistakesAreSaidOfTheFlagBeforeAnyRankStarts) {
  const TestFolder folder;
  const auto refused = [](const Words& more, int exit_code, const std::vector<std::string>& parts) {
    Words words = {"bench", "collective", "broadcast", "--ranks", "2", "-b", "64K", "-e", "64K"};
    words.insert(words.end(), more.begin(), more.end());
    const Outcome outcome = run_jige(words);
    expect_error(outcome, exit_code, parts);
    EXPECT_EQ(outcome.out, "") << more[0];
  };
  refused({"--root", "2"}, 2, {"--root: 2 is not one of 2 ranks"});
  refused({"--ring", folder / "none.json"}, 3, {"--ring: ", "none.json"});
  refused({"--ring", "0,0"}, 2, {"--ring: ", "0,0"});
  refused({"--ring", "0;1"}, 2, {"--ring: "});
  refused({"--piece", "100"}, 2, {"--piece: pieces of 100 bytes"});
  refused({"--tuning", folder.path()}, 2, {"--tuning: ", "is a folder"});
  refused({"--bind", "192.0.2.1", "--transport", "tcp"}, 8, {"--bind: 192.0.2.1"});
  expect_error(
      run_jige({"bench", "collective", "--rank", "0", "--world", "2", "--rendezvous", "x"}), 2,
      {"--rendezvous: \"x\" is not HOST:PORT"});
}

TEST(Collective, AGivenSizeMovesTheOtherOneAlong) {
  for (const auto& [flag, size, bytes] :
       {std::tuple{"-b", "40M", 40 << 20}, std::tuple{"-e", "4K", 4 << 10}}) {
    const Outcome outcome = run_jige(
        {"bench", "collective", "--ranks", "2", "-n", "1", "-w", "0", flag, size, "--json"});
    ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
    const JsonLines lines = outcome.json_lines();
    ASSERT_EQ(lines.size(), 2u) << outcome.out;  // the group, and one size
    EXPECT_EQ(lines[1]["bytes"], bytes);
  }
}

TEST(Threads, FarBeyondTheProcessorsAreRefusedByEveryCommandThatHasThem) {
  if (cpu_features().logical_count > 500) GTEST_SKIP() << "here so many are no mistake";
  const std::string model = TinyRun::get().model();
  const Words commands[] = {{"train", "--data", TinyRun::get().corpus(), "--out", "/dev/null/run"},
                            {"generate", model},
                            {"chat", model},
                            {"score", model},
                            {"serve", model},
                            {"bench"},
                            {"bench", "serve"},
                            {"plan", "train", "--size", "tiny", "--measure"}};
  for (Words words : commands) {
    words.insert(words.end(), {"--threads", "4096"});
    expect_error(run_jige(words), 2, {"--threads: 4096 is out of range", "to "});
  }
  expect_error(run_jige({"plan", "train", "--size", "tiny", "--measure", "--devices", "1024",
                         "--threads", "4"}),
               2, {"--devices: 1024 logical devices of 4 threads", "--measure"});
}

}  // namespace
}  // namespace jige::integration
