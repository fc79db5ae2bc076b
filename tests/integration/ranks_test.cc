// jige train as one job of several processes: the model of one process, and what becomes of the job
// when a rank is killed or stands still, when it is interrupted, and when flags do not fit
// together.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <chrono>
#include <cstdlib>
#include <memory>
#include <thread>

#include "base/clock.h"
#include "formats/checkpoint.h"
#include "integration/tiny_run.h"

namespace jige::integration {
namespace {

using ::testing::HasSubstr;
using RankWords = std::vector<std::string>;

RankWords arguments(const std::string& out, int steps, const RankWords& more) {
  RankWords words = tiny_train_arguments(TinyRun::get().corpus(), steps);
  words.insert(words.end(), {"--save-every", "5", "--out", out});
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

TEST(Ranks, MakeTheModelOfOneProcessHereAndOverARendezvous) {
  const TestFolder folder;
  ASSERT_EQ(run_jige(arguments(folder / "alone", 12, {})).exit_code, 0);
  const Outcome three =
      run_jige(arguments(folder / "three", 12, {"--ranks", "3", "--ring", "1,0,2", "--quiet"}));
  ASSERT_EQ(three.exit_code, 0) << three.err;
  EXPECT_EQ(three.err, "");
  EXPECT_TRUE(model_of(folder / "three") == model_of(folder / "alone"));
  const std::string log = read_text(folder / "three/log.jsonl");
  EXPECT_THAT(log, HasSubstr("\"ranks\":3"));
  EXPECT_THAT(log, HasSubstr("\"wait_s\":"));

  const std::string place = "127.0.0.1:" + std::to_string(free_port());
  const auto rank = [&](const char* number) {
    return arguments(
        folder / "hosts", 12,
        {"--rank", number, "--world", "2", "--rendezvous", place, "--transport", "tcp"});
  };
  const TestFolder streams;
  Process other(rank("1"), streams.path());
  const Outcome first = run_jige(rank("0"));
  EXPECT_EQ(first.exit_code, 0) << first.err;
  EXPECT_EQ(other.wait().exit_code, 0);
  EXPECT_TRUE(model_of(folder / "hosts") == model_of(folder / "alone"));
}

TEST(Ranks, EndWithinSecondsWhenOneIsKilledAndGoOnWithFewer) {
  const TestFolder folder, streams;
  ASSERT_EQ(run_jige(arguments(folder / "alone", 100, {})).exit_code, 0);
  Process job(arguments(folder / "run", 100, {"--ranks", "3"}), streams.path());
  const KilledRank killed = kill_rank(job, folder / "run", 3, 1);
  EXPECT_LT(killed.seconds, 5);
  EXPECT_THAT(killed.outcome.err, HasSubstr("rank 1 ("));
  EXPECT_THAT(killed.outcome.err, HasSubstr("its process has ended"));
  EXPECT_TRUE(formats::CheckpointReader::open_latest(folder / "run/checkpoints"));
  const Outcome again = run_jige(arguments(folder / "run", 100, {"--ranks", "2", "--resume"}));
  ASSERT_EQ(again.exit_code, 0) << again.err;
  EXPECT_TRUE(model_of(folder / "run") == model_of(folder / "alone"));
}

TEST(Ranks, GiveUpOneThatStandsStill) {
  const TestFolder folder, streams;
  Process job(arguments(folder / "run", 400, {"--ranks", "2", "--rank-timeout", "1"}),
              streams.path());
  wait_for_checkpoint(folder / "run", job);
  const std::vector<pid_t> ranks = ranks_of(job);
  ASSERT_EQ(ranks.size(), 2u);
  const StopWatch watch;
  ASSERT_EQ(kill(ranks[1], SIGSTOP), 0);
  const Outcome ended = job.wait();
  EXPECT_LT(watch.seconds(), 8);
  EXPECT_EQ(ended.exit_code, 8) << ended.err;
  EXPECT_THAT(ended.err, HasSubstr("nothing was heard of rank 1 ("));
}

TEST(Ranks, StopBehindACheckpointOnCtrlC) {
  const TestFolder folder, streams;
  ASSERT_EQ(run_jige(arguments(folder / "alone", 100, {})).exit_code, 0);
  Process job(arguments(folder / "run", 100, {"--ranks", "2"}), streams.path());
  wait_for_checkpoint(folder / "run", job);
  job.send(SIGINT);
  const Outcome stopped = job.wait();
  EXPECT_EQ(stopped.exit_code, 130) << stopped.err;
  EXPECT_THAT(stopped.err, HasSubstr("of 100, with a checkpoint"));
  const Outcome again = run_jige(arguments(folder / "run", 100, {"--resume"}));
  ASSERT_EQ(again.exit_code, 0) << again.err;
  EXPECT_TRUE(model_of(folder / "run") == model_of(folder / "alone"));
}

// Whether the job says so within half a minute.
bool says(const std::string& streams, const std::string& words) {
  const StopWatch watch;
  while (watch.seconds() < 30) {
    if (read_text(streams + "/err").find(words) != std::string::npos) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  return false;
}

TEST(Ranks, SayWhoHangsOnCtrlCAndEndAtOnceOnTheSecond) {
  const TestFolder folder;
  ASSERT_EQ(run_jige(arguments(folder / "alone", 400, {})).exit_code, 0);
  for (const size_t stopped : {size_t{1}, size_t{0}}) {
    const TestFolder streams;
    const std::string name = std::to_string(stopped);
    Process job(arguments(folder / name, 400, {"--ranks", "2", "--rank-timeout", "100"}),
                streams.path());
    wait_for_checkpoint(folder / name, job);
    const std::vector<pid_t> ranks = ranks_of(job);
    ASSERT_EQ(ranks.size(), 2u);
    ASSERT_EQ(kill(ranks[stopped], SIGSTOP), 0);
    job.send(SIGINT);
    EXPECT_TRUE(says(streams.path(), "nothing is heard of rank " + name + " ("));
    EXPECT_TRUE(says(streams.path(), "a second Ctrl-C ends all ranks at once"));
    job.send(SIGINT);
    EXPECT_EQ(job.wait().exit_code, 130);
    for (const pid_t rank : ranks) EXPECT_TRUE(gone(rank)) << rank;
    const Outcome again = run_jige(arguments(folder / name, 400, {"--resume"}));
    ASSERT_EQ(again.exit_code, 0) << again.err;
    EXPECT_TRUE(model_of(folder / name) == model_of(folder / "alone"));
  }
}

TEST(Ranks, RefuseWhatDoesNotFitTogether) {
  const TestFolder folder;
  const auto refused = [&](const RankWords& more, int exit_code, const std::string& words) {
    const Outcome outcome = run_jige(arguments(folder / "run", 12, more));
    EXPECT_EQ(outcome.exit_code, exit_code) << outcome.err;
    EXPECT_THAT(outcome.err, HasSubstr(words));
  };
  refused({"--ranks", "2", "--rank", "0"}, 2, "--ranks starts ranks by itself");
  refused({"--ranks", "2", "--devices", "2"}, 5, "give ranks or devices");
  refused({"--ranks", "3", "--ring", "0,1"}, 2, "ring");
  refused({"--rank", "0", "--world", "2"}, 2, "--rendezvous HOST:PORT is missing");
  refused({"--ranks", "2", "--resume"}, 3, "has no checkpoint to continue from");
  refused({"--ranks", "2", "--memory-limit", "8MiB"}, 6, "on each of 2 ranks here");
  refused({"--ranks", "2", "--memory-limit", "8MiB"}, 6, "or --shard-optimizer");
  refused({"--shard-optimizer"}, 2, "this process is alone: give --ranks");
  refused({"--split-context"}, 2, "this process is alone: give --ranks");
  refused({"--split-context", "--ranks", "2", "--dropout", "0.1"}, 5,
          "--split-context with --dropout is not supported yet");
  refused({"--split-context", "--ranks", "2", "--gradient-sum", "rings"}, 2,
          "leave --gradient-sum rings out");
  refused({"--ring", "0,1"}, 2, "--ring is about several ranks");
  refused({"--shard-optimizer", "--ranks", "2", "--devices", "2"}, 5, "give ranks or devices");
}

// Sequences that ranks have together: killed, they go on as one process, and the other way.
TEST(Ranks, DivideSequencesAndGoOnFromAKill) {
  const TestFolder folder;
  const RankWords f32 = {"--dtype", "f32"};
  ASSERT_EQ(run_jige(arguments(folder / "alone", 100, f32)).exit_code, 0);
  for (RankWords others : {RankWords{"--ranks", "2", "--split-context", "--shard-optimizer"}, {}}) {
    others.insert(others.end(), f32.begin(), f32.end());
    const std::string run = folder / ("run" + std::to_string(others.size()));
    const TestFolder streams;
    Process job(arguments(run, 100, {"--ranks", "3", "--split-context", "--dtype", "f32"}),
                streams.path());
    const KilledRank killed = kill_rank(job, run, 3, 1);
    EXPECT_LT(killed.seconds, 5);
    EXPECT_THAT(killed.outcome.err, HasSubstr("rank 1 ("));
    const Outcome again = run_jige(arguments(run, 100, others));
    ASSERT_EQ(again.exit_code, 0) << again.err;
    EXPECT_TRUE(model_of(run) == model_of(folder / "alone"));
  }
}

// As mpirun starts them: rank and number of ranks in the environment.
TEST(Ranks, DivideTheOptimizerAsMpirunStartsThem) {
  const TestFolder folder;
  ASSERT_EQ(run_jige(arguments(folder / "alone", 12, {})).exit_code, 0);
  const std::string place = "127.0.0.1:" + std::to_string(free_port());
  ASSERT_EQ(setenv("OMPI_COMM_WORLD_SIZE", "3", 1), 0);
  std::vector<std::unique_ptr<TestFolder>> streams;
  std::vector<std::unique_ptr<Process>> ranks;
  for (const char* rank : {"0", "1", "2"}) {
    ASSERT_EQ(setenv("OMPI_COMM_WORLD_RANK", rank, 1), 0);
    streams.push_back(std::make_unique<TestFolder>());
    ranks.push_back(std::make_unique<Process>(
        arguments(folder / "run", 12, {"--rendezvous", place, "--shard-optimizer"}),
        streams.back()->path()));
  }
  unsetenv("OMPI_COMM_WORLD_RANK");
  unsetenv("OMPI_COMM_WORLD_SIZE");
  for (const auto& rank : ranks) {
    const Outcome outcome = rank->wait();
    EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  }
  EXPECT_TRUE(model_of(folder / "run") == model_of(folder / "alone"));
  EXPECT_THAT(read_text(folder / "run/log.jsonl"), HasSubstr("\"shard_optimizer\":true"));
}

TEST(Ranks, GoOnFromAKillWithADividedOptimizerOrWithout) {
  const TestFolder folder;
  ASSERT_EQ(run_jige(arguments(folder / "alone", 100, {})).exit_code, 0);
  for (const RankWords& others : {RankWords{"--ranks", "4", "--shard-optimizer"}, RankWords{}}) {
    const std::string run = folder / ("run" + std::to_string(others.size()));
    const TestFolder streams;
    Process job(arguments(run, 100, {"--ranks", "3", "--shard-optimizer"}), streams.path());
    kill_rank(job, run, 3, 2);
    const Outcome again = run_jige(arguments(run, 100, others));
    ASSERT_EQ(again.exit_code, 0) << again.err;
    EXPECT_TRUE(model_of(run) == model_of(folder / "alone"));
  }
}

}  // namespace
}  // namespace jige::integration
