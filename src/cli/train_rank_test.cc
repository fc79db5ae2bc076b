// jige train as one job of several processes: the model of one process, and what becomes of the job
// when a rank is killed, when it is interrupted, and when flags do not fit together.

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <functional>

#include "base/clock.h"
#include "base/file.h"
#include "cli/commands.h"
#include "cli/flags.h"
#include "cli/output.h"
#include "cli/ring_file.h"
#include "comm/socket.h"
#include "formats/checkpoint.h"

namespace jige::cli {
namespace {

using ::testing::HasSubstr;
using Words = std::vector<std::string>;

constexpr double kSecondsMax = 60;

struct Outcome {
  int exit_code = -1;  // -1: it did not end by itself
  std::string errors;
};

class RanksOfTrain : public testing::Test {
 protected:
  RanksOfTrain() {
    folder_ = testing::TempDir() + "jige_ranks." + std::to_string(getpid());
    std::filesystem::create_directories(folder_);
    std::string text;
    for (int i = 0; i < 60; ++i) text += "Item " + std::to_string(i * 7) + " is on the shelf.\n\n";
    EXPECT_TRUE(write_file_atomic(folder_ + "/a.txt", text));
  }
  ~RanksOfTrain() override { std::filesystem::remove_all(folder_); }

  Words words(const std::string& out, int steps, const Words& more) const {
    Words all = {"--data",
                 folder_ + "/a.txt",
                 "--split",
                 "blank-lines",
                 "--width",
                 "32",
                 "--layers",
                 "3",
                 "--heads",
                 "2",
                 "--context",
                 "32",
                 "--steps",
                 std::to_string(steps),
                 "--dtype",
                 "f32",
                 "--threads",
                 "1",
                 "--quiet",
                 "--save-every",
                 "5",
                 "--vocab-size",
                 "300",
                 "--batch-tokens",
                 "128",
                 "--micro-batch-tokens",
                 "64",
                 "--eval-every",
                 "10",
                 "--out",
                 folder_ + "/" + out};
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }

  // Starts the command in a process of its own, as cli::run does.
  pid_t start(const Words& words, const std::string& name) const {
    const pid_t child = fork();
    if (child != 0) return child;
    const int fd =
        open((folder_ + "/" + name + ".err").c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
    if (fd < 0 || dup2(fd, STDERR_FILENO) < 0) _exit(126);
    const auto command = make_train_command();
    Flags flags("train");
    command->declare(flags);
    Status status = flags.parse(words);
    if (status) status = command->run();
    if (!status) print_error(status.error(), false);
    _exit(status ? 0 : exit_code(status.error().code));
  }

  Outcome finish(pid_t child, const std::string& name) const {
    int status = 0;
    const StopWatch watch;
    while (waitpid(child, &status, WNOHANG) == 0) {
      if (watch.seconds() > kSecondsMax) kill(child, SIGKILL);
      usleep(1000);
    }
    return {.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : -1,
            .errors = read_file(folder_ + "/" + name + ".err").value_or("")};
  }

  Outcome run(const std::string& out, int steps, const Words& more) const {
    return finish(start(words(out, steps, more), out), out);
  }

  std::string model(const std::string& out) const {
    return read_file(folder_ + "/" + out + "/model/model.safetensors").value_or("no model");
  }

  // Returns when a run has the checkpoint of a step.
  void await_checkpoint(const std::string& out, int64_t step) const {
    const StopWatch watch;
    for (;;) {
      const auto kept = formats::list_checkpoints(folder_ + "/" + out + "/checkpoints");
      if (!kept.empty() && kept.front().step >= step) return;
      ASSERT_LT(watch.seconds(), kSecondsMax) << "no checkpoint of step " << step;
      usleep(1000);
    }
  }

  std::string folder_;
};

// By the order in which they were started.
std::vector<pid_t> children_of(pid_t parent) {
  std::vector<pid_t> children;
  std::ifstream list(fmt::format("/proc/{0}/task/{0}/children", parent));
  for (pid_t child = 0; list >> child;) children.push_back(child);
  return children;
}

TEST_F(RanksOfTrain, MakeTheModelOfOneProcess) {
  const Outcome alone = run("alone", 12, {});
  ASSERT_EQ(alone.exit_code, 0) << alone.errors;
  const Outcome three = run("three", 12, {"--ranks", "3", "--ring", "1,0,2"});
  ASSERT_EQ(three.exit_code, 0) << three.errors;
  EXPECT_EQ(three.errors, "");
  EXPECT_EQ(model("three"), model("alone"));
  const auto log = read_file(folder_ + "/three/log.jsonl");
  ASSERT_TRUE(log);
  EXPECT_THAT(*log, HasSubstr("\"ranks\":3"));
  EXPECT_THAT(*log, HasSubstr("\"wait_s\":"));
}

TEST_F(RanksOfTrain, MeetOverHostsAtARendezvous) {
  const Outcome alone = run("alone", 8, {});
  ASSERT_EQ(alone.exit_code, 0) << alone.errors;
  // A port that was free a moment ago.
  const std::string place = comm::Listener::open({"127.0.0.1", 0})->address().text();
  std::vector<pid_t> started;
  for (int r = 0; r < 2; ++r) {
    const Words more = {"--rank", std::to_string(r), "--world", "2", "--rendezvous",
                        place,    "--transport",     "tcp"};
    started.push_back(start(words("hosts", 8, more), fmt::format("host{}", r)));
  }
  for (int r = 0; r < 2; ++r) {
    const Outcome rank = finish(started[static_cast<size_t>(r)], fmt::format("host{}", r));
    EXPECT_EQ(rank.exit_code, 0) << rank.errors;
  }
  EXPECT_EQ(model("hosts"), model("alone"));
}

TEST_F(RanksOfTrain, EndWithinSecondsWhenOneIsKilledAndGoOnWithFewer) {
  const Outcome alone = run("alone", 60, {});
  ASSERT_EQ(alone.exit_code, 0) << alone.errors;
  const pid_t job = start(words("killed", 60, {"--ranks", "3"}), "killed");
  await_checkpoint("killed", 5);
  const std::vector<pid_t> ranks = children_of(job);
  ASSERT_EQ(ranks.size(), 3u);
  const StopWatch watch;
  ASSERT_EQ(kill(ranks[1], SIGKILL), 0);
  const Outcome killed = finish(job, "killed");
  EXPECT_LT(watch.seconds(), 5);
  EXPECT_EQ(killed.exit_code, exit_code(Code::kUnavailable)) << killed.errors;
  EXPECT_THAT(killed.errors, HasSubstr("rank 1 ("));
  EXPECT_THAT(killed.errors, HasSubstr("its process has ended"));
  EXPECT_THAT(killed.errors, HasSubstr("is whole, and the same command goes on"));
  EXPECT_TRUE(formats::CheckpointReader::open_latest(folder_ + "/killed/checkpoints"));
  const Outcome again = run("killed", 60, {"--ranks", "2", "--resume"});
  ASSERT_EQ(again.exit_code, 0) << again.errors;
  EXPECT_EQ(model("killed"), model("alone"));
}

TEST_F(RanksOfTrain, GiveUpOneThatStandsStill) {
  const pid_t job = start(words("stands", 200, {"--ranks", "2", "--rank-timeout", "1"}), "stands");
  await_checkpoint("stands", 5);
  const std::vector<pid_t> ranks = children_of(job);
  ASSERT_EQ(ranks.size(), 2u);
  const StopWatch watch;
  ASSERT_EQ(kill(ranks[1], SIGSTOP), 0);
  const Outcome ended = finish(job, "stands");
  EXPECT_LT(watch.seconds(), 10);
  EXPECT_EQ(ended.exit_code, exit_code(Code::kUnavailable)) << ended.errors;
  EXPECT_THAT(ended.errors, HasSubstr("nothing was heard of rank 1 ("));
}

TEST_F(RanksOfTrain, StopBehindACheckpointOnCtrlC) {
  const Outcome alone = run("alone", 60, {});
  ASSERT_EQ(alone.exit_code, 0) << alone.errors;
  const pid_t job = start(words("stopped", 60, {"--ranks", "2"}), "stopped");
  await_checkpoint("stopped", 5);
  kill(job, SIGINT);
  const Outcome stopped = finish(job, "stopped");
  EXPECT_EQ(stopped.exit_code, exit_code(Code::kCancelled)) << stopped.errors;
  EXPECT_THAT(stopped.errors, HasSubstr("of 60, with a checkpoint"));
  const Outcome again = run("stopped", 60, {"--resume"});
  ASSERT_EQ(again.exit_code, 0) << again.errors;
  EXPECT_EQ(model("stopped"), model("alone"));
}

TEST_F(RanksOfTrain, RefuseWhatDoesNotFitTogether) {
  const Outcome both = run("refused", 4, {"--ranks", "2", "--rank", "0"});
  EXPECT_EQ(both.exit_code, exit_code(Code::kInvalidArgument));
  EXPECT_THAT(both.errors, HasSubstr("--ranks starts ranks by itself"));
  const Outcome devices = run("refused", 4, {"--ranks", "2", "--devices", "2"});
  EXPECT_EQ(devices.exit_code, exit_code(Code::kUnsupported));
  EXPECT_THAT(devices.errors, HasSubstr("give ranks or devices"));
  const Outcome ring = run("refused", 4, {"--ranks", "3", "--ring", "0,1"});
  EXPECT_EQ(ring.exit_code, exit_code(Code::kInvalidArgument)) << ring.errors;
  const Outcome fresh = run("refused", 4, {"--ranks", "2", "--resume"});
  EXPECT_EQ(fresh.exit_code, exit_code(Code::kNotFound)) << fresh.errors;
  EXPECT_THAT(fresh.errors, HasSubstr("has no checkpoint to continue from"));
}

TEST_F(RanksOfTrain, TakeTheRingOfAPlan) {
  const std::string path = folder_ + "/ring.json";
  ASSERT_TRUE(write_file_atomic(
      path, R"({"format": "jige.ring-plan", "ring": {"order": ["c", "a", "d", "b"]},
                "baselines": {"rank order": {"order": ["a", "b", "c", "d"]}}})"));
  const auto ring = read_ring_file(path);
  ASSERT_TRUE(ring) << ring.error().message;
  EXPECT_EQ(ring->order, (std::vector<int>{2, 0, 3, 1}));
  for (const char* bad : {R"({})", R"({"ring": {"order": [1]}, "baselines": {"rank order": {}}})",
                          R"({"ring": {"order": ["x"]}, "baselines": {"rank order": {"order":
                              ["a"]}}})"}) {
    ASSERT_TRUE(write_file_atomic(path, bad));
    const auto refused = read_ring_file(path);
    ASSERT_FALSE(refused) << bad;
    EXPECT_THAT(refused.error().message, HasSubstr(path));
  }
}

}  // namespace
}  // namespace jige::cli
